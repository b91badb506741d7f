#include "pipeline.h"

#include <algorithm>
#include <atomic>
#include <stop_token>
#include <utility>

#include "errors.h"
#include "interpreter.h"
#include "interruptible.h"
#include "penstock/base/error.h"

namespace ps::python {
namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// The part of `size` bytes that falls into a slot at `at`.
std::size_t part(std::uint64_t size, std::uint64_t at, std::size_t slot) {
  return static_cast<std::size_t>(std::min<std::uint64_t>(slot, size > at ? size - at : 0));
}

nb::list as_list(nb::handle value) {
  nb::list list;
  if (value.is_none()) return list;
  if (nb::isinstance<nb::str>(value) || !nb::hasattr(value, "__iter__")) {
    list.append(value);
  } else {
    for (nb::handle one : value) list.append(one);
  }
  return list;
}

// The ring or stage that `given`, an object or a name, refers to.
template <class T>
const T& find_in(const std::vector<T>& known, std::uint64_t pipeline, nb::handle given,
                 const char* argument, const char* expected) {
  const bool by_name = nb::isinstance<nb::str>(given);
  const auto is_it = [&](const T& one) {
    if (by_name) return one.name == nb::cast<nb::str>(given).c_str();
    if (!nb::isinstance<T>(given)) return false;
    const T& other = nb::cast<const T&>(given);
    return other.pipeline == pipeline && other.id.value == one.id.value;
  };
  const auto found = std::find_if(known.begin(), known.end(), is_it);
  if (found == known.end()) throw InvalidArgument(argument, expected, nb::repr(given).c_str());
  return *found;
}

}  // namespace

ps::Item& ItemOfPython::item() const {
  if (over()) {
    throw std::runtime_error(
        "the item is over; it may be used only until the stage function returns");
  }
  return *item_;
}

Array ItemOfPython::slot(nb::handle given) const {
  const ps::Item& live = item();
  const Ring& ring = pipeline_->ring_from("ring", given);
  const MemoryView memory = live.slot(ring.id);
  return {TensorView(memory.data, ring.dtype, ring.shape, memory.place), pipeline_->memory(),
          lease_, stream_ != nullptr ? std::optional(*stream_) : std::nullopt};
}

Stream ItemOfPython::stream() const {
  const ps::Item& live = item();
  return stream_ != nullptr ? *stream_ : live.stream();
}

bool ItemOfPython::stopping() const { return item().stopping(); }

PipelineOfPython::PipelineOfPython(const Device& device, std::size_t depth)
    : number_(next_number()),
      device_(device),
      pipeline_(std::make_shared<Pipeline>(PipelineOptions{.device = device, .depth = depth})) {}

void PipelineOfPython::refuse_while_running() const {
  if (running_) throw InvalidArgument("pipeline", "one that is not running", "one that is running");
}

Ring PipelineOfPython::ring(std::string name, const RingOptions& options, DType dtype,
                            std::vector<std::int64_t> shape) {
  refuse_while_running();
  const RingId id = pipeline_->ring(name, options);
  rings_.push_back({std::move(name), dtype, std::move(shape), options.bytes, id, number_});
  return rings_.back();
}

Stage PipelineOfPython::add(const std::string& name, StageId id) {
  stages_.push_back({name, id, number_});
  return stages_.back();
}

Stage PipelineOfPython::device_stage(const std::string& name, nb::object function,
                                     const StageOptions& options) {
  refuse_while_running();
  const std::size_t number = functions_.size();
  StageId id;
  if (device_.kind() == DeviceKind::cpu) {
    cpu_streams_.push_back(std::make_unique<Stream>(options.stream.value_or(Stream(device_))));
    id = pipeline_->host_stage(
        name, {.after = options.after, .uses = options.uses, .engine = options.engine},
        [this, number, stream = cpu_streams_.back().get()](ps::Item& item) {
          call(number, item, stream);
        });
  } else {
    id = pipeline_->stage(name, options,
                          [this, number](ps::Item& item) { call(number, item, &item.stream()); });
  }
  functions_.push_back(std::move(function));
  return add(name, id);
}

Stage PipelineOfPython::host_stage(const std::string& name, nb::object function,
                                   const HostStageOptions& options) {
  refuse_while_running();
  const StageId id = pipeline_->host_stage(
      name, options,
      [this, number = functions_.size()](ps::Item& item) { call(number, item, nullptr); });
  functions_.push_back(std::move(function));
  return add(name, id);
}

void PipelineOfPython::call(std::size_t function, ps::Item& item, const Stream* stream) {
  const Inside inside;
  const auto lease = std::make_shared<bool>(true);
  const nb::object argument = nb::cast(ItemOfPython(item, *this, stream, lease));
  PyObject* const result = python::call(functions_[function].ptr(), argument.ptr());
  *lease = false;
  if (result == nullptr) throw PythonFailure::take();
  Py_DECREF(result);
}

Stage PipelineOfPython::read_stage(const std::string& name, const OpenedFile& file,
                                   const Ring& into, std::uint64_t offset,
                                   HostStageOptions options) {
  refuse_while_running();
  options.uses.push_back(into.id);
  const auto read = [file = file.file(), path = file.path(), id = into.id, bytes = into.bytes,
                     offset](ps::Item& item, const Completion& done) {
    const std::uint64_t at = offset + item.index() * bytes;
    // Beyond the end of the file, reading a whole slot fails as it should.
    const std::size_t left = part(file.size(), at, bytes);
    const MemoryView slot = item.slot(id).sub(0, left == 0 ? bytes : left);
    file.read(at, slot, [done, path](std::exception_ptr failure) {
      done(failure ? with_path(std::move(failure), path) : nullptr);
    });
  };
  return add(name, pipeline_->async_stage(name, options, read));
}

Stage PipelineOfPython::write_stage(const std::string& name, const OpenedFile& file,
                                    const Ring& from, std::uint64_t offset,
                                    std::optional<std::uint64_t> size, HostStageOptions options) {
  refuse_while_running();
  if (file.mode() != FileMode::write) {
    throw InvalidArgument("file", "a file opened with mode 'w'",
                          file.path() + ", opened with mode 'r'");
  }
  options.uses.push_back(from.id);
  const auto write = [file = file.file(), path = file.path(), id = from.id, bytes = from.bytes,
                      offset, size](ps::Item& item, const Completion& done) {
    const std::uint64_t at = item.index() * bytes;
    const std::size_t left = size ? part(*size, at, bytes) : bytes;
    file.write(offset + at, item.slot(id).sub(0, left), [done, path](std::exception_ptr failure) {
      done(failure ? with_path(std::move(failure), path) : nullptr);
    });
  };
  return add(name, pipeline_->async_stage(name, options, write));
}

RunReport PipelineOfPython::run(const PythonRunOptions& options) {
  refuse_while_running();
  std::stop_source stop;
  const StoppedAtExit stopped_at_exit([stop]() mutable { stop.request_stop(); });
  const RunOptions run{.items = options.items,
                       .stop = stop.get_token(),
                       .progress = listening(options.progress),
                       .recorder = options.recorder,
                       .after = options.after};
  const nb::object alive = nb::find(this);
  running_ = true;
  struct Ended {
    bool& running;
    ~Ended() { running = false; }
  } const ended{running_};
  return without_lock([&] { return pipeline_->run(run); });
}

std::vector<StageId> PipelineOfPython::stages_from(nb::handle list) const {
  std::vector<StageId> ids;
  for (nb::handle one : as_list(list)) {
    ids.push_back(find_in(stages_, number_, one, "after", "stages of this pipeline").id);
  }
  return ids;
}

std::vector<RingId> PipelineOfPython::rings_from(nb::handle list) const {
  std::vector<RingId> ids;
  for (nb::handle one : as_list(list)) ids.push_back(ring_from("uses", one).id);
  return ids;
}

const Ring& PipelineOfPython::ring_from(const char* argument, nb::handle ring) const {
  return find_in(rings_, number_, ring, argument, "a ring of this pipeline");
}

}  // namespace ps::python
