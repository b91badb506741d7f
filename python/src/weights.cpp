// Checkpoints in the safetensors format.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "borrowed.h"
#include "errors.h"
#include "interpreter.h"
#include "interruptible.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/weights/load.h"
#include "penstock/weights/weights.h"
#include "penstock/weights/writer.h"
#include "storage.h"

namespace ps::python {
namespace {

using TensorTuple = std::tuple<std::string, std::string, std::vector<std::int64_t>>;

// Name, array, first row, number of rows.
using PartTuple = std::tuple<std::string, nb::object, std::int64_t, std::int64_t>;

// Reads of fewer bytes take too little time to be interrupted.
constexpr std::size_t long_read = 64 * MiB;

Weights opened(const std::string& path) {
  return without_lock([&] { return naming(path, [&] { return Weights(path); }); });
}

nb::tuple tuple_of(const std::vector<std::int64_t>& shape) {
  nb::list list;
  for (const std::int64_t extent : shape) list.append(extent);
  return nb::tuple(list);
}

// Errors of files keep their own path in the message; Python also gets that of the checkpoint.
const std::string& path_of(const Weights& weights) {
  static const std::string none;
  return weights.files().empty() ? none : weights.files()[0].path();
}

// Whether a read can bypass the page cache: memory and file are equally far behind a page.
bool is_direct(const Weights& weights, const WeightRead& read) {
  const WeightInfo& tensor = weights.tensors()[read.tensor];
  const auto rows = tensor.shape.empty() ? 1 : std::max<std::int64_t>(tensor.shape[0], 1);
  const std::uint64_t begin = tensor.offset + tensor.bytes / static_cast<std::uint64_t>(rows) *
                                                  static_cast<std::uint64_t>(read.first_row);
  return (reinterpret_cast<std::uintptr_t>(read.to.data) - begin) % 4096 == 0;
}

void read_to_host(const Weights& weights, std::vector<WeightRead> reads) {
  std::size_t bytes = 0;
  for (const WeightRead& read : reads) bytes += read.to.bytes;
  std::vector<LoadTarget> others;
  if (bytes >= long_read) {
    // Through slots, which is faster than through the page cache.
    std::erase_if(reads, [&](const WeightRead& read) {
      if (is_direct(weights, read)) return false;
      others.push_back({read.tensor, read.to, read.first_row, read.rows});
      return true;
    });
  }
  const auto work = [&](const std::stop_token& stop) {
    naming(path_of(weights), [&] {
      weights.read(reads, {.stop = stop});
      load(weights, others, {.device = Device::cpu(), .slots = 8, .slot_bytes = MiB, .stop = stop});
    });
  };
  if (bytes < long_read) return without_lock([&] { work({}); });
  interruptible(nb::none(), [&](const std::stop_token& stop, const Report&) { work(stop); });
}

void read_to_gpu(const Weights& weights, const std::vector<LoadTarget>& targets,
                 const Stream& after) {
  without_lock([&] {
    naming(path_of(weights), [&] {
      load(weights, targets,
           {.device = after.device(),
            .progress = [](std::uint64_t, std::uint64_t) { throw_if_interrupted(); },
            .after = after});
    });
  });
}

// What goes to one GPU, after what its arrays' owners have enqueued.
struct GpuReads {
  Stream stream;
  std::vector<LoadTarget> targets{};
};

void read_tensors(const Weights& weights, const std::vector<PartTuple>& parts) {
  std::vector<Borrowed> held;
  std::vector<WeightRead> to_host;
  std::map<int, GpuReads> to_gpus;
  for (const auto& [name, out, first_row, rows] : parts) {
    const std::size_t tensor = weights.index_of(name);
    BorrowOptions options{.argument = "out", .access = Access::write, .elements = Elements::bytes};
    if (const auto gpu = gpu_of(out)) {
      GpuReads& reads =
          to_gpus.try_emplace(*gpu, GpuReads{Stream(Device::cuda(*gpu))}).first->second;
      options.stream = &reads.stream;
      held.emplace_back(out, options);
      reads.targets.push_back({tensor, held.back().memory(), first_row, rows});
    } else {
      held.emplace_back(out, options);
      to_host.push_back({tensor, held.back().memory(), first_row, rows});
    }
  }
  read_to_host(weights, to_host);
  for (const auto& [gpu, reads] : to_gpus) read_to_gpu(weights, reads.targets, reads.stream);
}

// A writer that can be given up.
class OpenedWriter {
 public:
  OpenedWriter(std::string path, const std::vector<TensorTuple>& tensors,
               WeightsWriterOptions options)
      : path_(std::move(path)) {
    std::vector<WeightSpec> specs;
    for (const auto& [name, type, shape] : tensors) {
      const auto found = find_weight_type(type);
      if (!found) {
        throw InvalidArgument("dtype", "a type of the format, such as 'BF16'", "'" + type + "'");
      }
      specs.push_back({name, *found, shape});
    }
    without_lock([&] {
      naming(path_, [&] { writer_.emplace(path_, std::move(specs), std::move(options)); });
    });
  }

  void write(const std::string& name, nb::handle source) {
    const Borrowed from(source, {.argument = "source", .elements = Elements::bytes});
    without_lock([&] { naming(path_, [&] { writer().write(name, from.memory()); }); });
  }
  void finish() {
    without_lock([&] { naming(path_, [&] { writer().finish(); }); });
    writer_.reset();
  }
  void close() { writer_.reset(); }

 private:
  WeightsWriter& writer() {
    if (!writer_) throw InvalidArgument("writer", "one that is open", path_ + ", which is closed");
    return *writer_;
  }

  std::string path_;
  std::optional<WeightsWriter> writer_;
};

void bind_reader(nb::module_& m) {
  nb::class_<Weights>(m, "Weights", "The open files of a checkpoint; see penstock.weights.")
      .def(
          "__init__",
          [](Weights* self, nb::handle path) { new (self) Weights(opened(path_from(path))); },
          nb::arg("path"),
          nb::sig("def __init__(self, path: str | bytes | os.PathLike[str]) -> None"))
      .def_prop_ro("names",
                   [](const Weights& weights) {
                     std::vector<std::string> names;
                     for (const WeightInfo& tensor : weights.tensors()) {
                       names.push_back(tensor.name);
                     }
                     return names;
                   })
      .def_prop_ro("nbytes", &Weights::bytes)
      .def_prop_ro(
          "files",
          [](const Weights& weights) {
            nb::list paths;
            for (const File& file : weights.files()) {
              paths.append(nb::steal<nb::str>(PyUnicode_DecodeFSDefault(file.path().c_str())));
            }
            return paths;
          },
          nb::sig("def files(self) -> list[str]"))
      .def("metadata", &Weights::metadata, nb::arg("file") = 0)
      .def("contains", &Weights::contains, nb::arg("name"))
      .def(
          "info",
          [](const Weights& weights, const std::string& name) {
            const WeightInfo& tensor = weights.tensors()[weights.index_of(name)];
            return nb::make_tuple(std::string(ps::name(tensor.type)), tuple_of(tensor.shape),
                                  tensor.file, tensor.offset, tensor.bytes);
          },
          nb::arg("name"),
          nb::sig("def info(self, name: str) -> tuple[str, tuple[int, ...], int, int, int]"),
          "Type, shape, index of the file, offset and bytes of a tensor.")
      .def("read", read_tensors, nb::arg("parts"),
           nb::sig("def read(self, parts: Sequence[tuple[str, typing.Any, int, int]]) -> None"),
           "Fills arrays: each part is a name, an array, the first row and the number of rows, or "
           "-1 "
           "for all rows.");
}

}  // namespace

void bind_weights(nb::module_& m) {
  bind_reader(m);
  nb::class_<OpenedWriter>(m, "WeightsWriter", "Writes a checkpoint; see penstock.weights.")
      .def(
          "__init__",
          [](OpenedWriter* self, nb::handle path, const std::vector<TensorTuple>& tensors,
             const std::map<std::string, std::string>& metadata, std::uint64_t shard_bytes,
             std::size_t alignment) {
            new (self) OpenedWriter(
                path_from(path), tensors,
                {.metadata = metadata, .shard_bytes = shard_bytes, .alignment = alignment});
          },
          nb::arg("path"), nb::arg("tensors"), nb::arg("metadata"), nb::arg("shard_bytes"),
          nb::arg("alignment"),
          nb::sig("def __init__(self, path: str | bytes | os.PathLike[str], tensors: "
                  "Sequence[tuple[str, str, Sequence[int]]], metadata: dict[str, str], "
                  "shard_bytes: int, alignment: int) -> None"))
      .def("write", &OpenedWriter::write, nb::arg("name"), nb::arg("source").none(),
           nb::sig("def write(self, name: str, source: typing.Any) -> None"))
      .def("finish", &OpenedWriter::finish)
      .def("close", &OpenedWriter::close, "Removes what was written, unless it is finished.");
}

}  // namespace ps::python
