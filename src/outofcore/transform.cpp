#include "penstock/outofcore/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "outofcore/host_copy.h"
#include "outofcore/joined_transfers.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/host/storage.h"

namespace ps {
namespace {

// Pieces are multiples of this: every operand's then begin at a page, which direct transfers need.
constexpr std::size_t granule = 4096;

enum class Source : std::uint8_t {
  reachable,  // memory that the device's copies, or its work, reach
  pageable,   // memory that goes through slots
  file,
};

struct Operand {
  StreamedOperand given;
  std::string name;  // "in[0]", "out"
  Source source = Source::reachable;
  std::optional<File> file{};
  std::size_t in_slot = 0;    // bytes before it in a slot of its ring
  std::size_t in_device = 0;  // the same on the device

  std::size_t element() const { return size_of(given.dtype); }
};

void check_memory(const Operand& operand, std::uint64_t elements) {
  const MemoryView& memory = operand.given.memory;
  const std::string argument = operand.name + ".memory";
  if (memory.place.memory == Memory::device && memory.place.device != cpu_index) {
    detail::throw_invalid(argument,
                          "host memory (data that is already on a GPU needs no streaming)",
                          "memory of " + name(memory.place));
  }
  const std::size_t wanted = elements * operand.element();
  if (memory.bytes != wanted) {
    detail::throw_invalid(
        argument, fmt::format("{} bytes, {} of {}", wanted, elements, name(operand.given.dtype)),
        fmt::format("{} bytes", memory.bytes));
  }
  if (memory.data == nullptr && wanted > 0) {
    detail::throw_invalid(argument, "a pointer to the elements", "null");
  }
  if (reinterpret_cast<std::uintptr_t>(memory.data) % operand.element() != 0) {
    detail::throw_invalid(argument,
                          fmt::format("an address aligned to {} bytes", operand.element()),
                          "one that is not");
  }
}

void check_overlap(const Operand& in, const Operand& out) {
  if (!in.given.file.empty() && !out.given.file.empty()) {
    std::error_code ignored;
    if (std::filesystem::equivalent(in.given.file, out.given.file, ignored)) {
      detail::throw_invalid("out.file", "another file than " + in.name + "'s",
                            "'" + out.given.file.string() + "'");
    }
    return;
  }
  const MemoryView &a = in.given.memory, &b = out.given.memory;
  const bool same = a.data == b.data && in.element() == out.element();
  if (!same && a.data < b.data + b.bytes && b.data < a.data + a.bytes) {
    detail::throw_invalid("out.memory",
                          "the memory of " + in.name +
                              " with elements of the same size, or memory that does not overlap it",
                          "a partial overlap");
  }
}

}  // namespace

struct StreamedTransform::State {
  explicit State(StreamedTransformOptions given);

  void build();
  RunReport run(const StreamedRun& run);

  std::size_t count(std::uint64_t item) const {
    return static_cast<std::size_t>(
        std::min<std::uint64_t>(piece, options.elements - item * piece));
  }
  MemoryView in_memory(const Operand& operand, std::uint64_t item) const {
    return operand.given.memory.sub(item * piece * operand.element(),
                                    count(item) * operand.element());
  }
  MemoryView in_slot(const Operand& operand, MemoryView slot, std::size_t before,
                     std::uint64_t item) const {
    return slot.sub(before, count(item) * operand.element());
  }

  StreamedTransformOptions options;
  bool on_cpu = false;
  std::vector<Operand> in;
  Operand out;
  std::size_t piece = 0;
  std::uint64_t pieces = 0;
  std::size_t device_total = 0, pinned_total = 0;
  std::optional<Pipeline> pipeline;

 private:
  void check();
  void classify(Operand& operand) const;
  void open_files();
  void choose_piece();
  std::size_t bytes_of(Source source) const;  // of an element of all inputs that come from there

  void add_work(const std::vector<StageId>& after, std::optional<RingId> read,
                std::optional<RingId> filled);
};

StreamedTransform::State::State(StreamedTransformOptions given) : options(std::move(given)) {
  on_cpu = options.device.kind() == DeviceKind::cpu;
  for (std::size_t i = 0; i < options.in.size(); ++i) {
    in.push_back({.given = options.in[i], .name = fmt::format("in[{}]", i)});
  }
  out = {.given = options.out, .name = "out"};
  check();
  choose_piece();
  open_files();
  if (options.elements > 0) build();
}

void StreamedTransform::State::classify(Operand& operand) const {
  const bool has_memory = operand.given.memory.data != nullptr || operand.given.memory.bytes > 0;
  const bool has_file = !operand.given.file.empty();
  if (has_memory && has_file) {
    detail::throw_invalid(operand.name, "memory or a file", "both");
  }
  if (!has_memory && !has_file && options.elements > 0) {
    detail::throw_invalid(operand.name, "memory or a file", "neither");
  }
  if (operand.element() == 0) {
    detail::throw_invalid(operand.name + ".dtype", "a ps::DType", "another number");
  }
  checked_mul(options.elements, operand.element(), "elements");
  if (has_file) {
    operand.source = Source::file;
    return;
  }
  check_memory(operand, options.elements);
  if (operand.given.offset != 0) {
    detail::throw_invalid(operand.name + ".offset", "0 for memory",
                          std::to_string(operand.given.offset));
  }
  const bool pageable = operand.given.memory.place.memory == Memory::host;
  operand.source = pageable && !on_cpu ? Source::pageable : Source::reachable;
}

void StreamedTransform::State::check() {
  if (in.empty() || in.size() > 4) {
    detail::throw_invalid("in", "one to four operands", std::to_string(in.size()));
  }
  if (!options.function)
    detail::throw_invalid("function", "a function to apply to each piece", "none");
  if (options.depth == 0) detail::throw_invalid("depth", "at least 1", "0");
  if (options.host_depth == 0) detail::throw_invalid("host_depth", "at least 1", "0");
  for (Operand& operand : in) classify(operand);
  classify(out);
  if (out.given.offset != 0) {
    detail::throw_invalid("out.offset", "0, because the output file is replaced",
                          std::to_string(out.given.offset));
  }
  for (const Operand& operand : in) check_overlap(operand, out);
}

std::size_t StreamedTransform::State::bytes_of(Source source) const {
  std::size_t bytes = 0;
  for (const Operand& operand : in) {
    if (operand.source == source) bytes += operand.element();
  }
  return bytes;
}

// Large enough that a copy's start costs little, small enough that several pieces are under way.
void StreamedTransform::State::choose_piece() {
  std::size_t all_in = 0;
  for (const Operand& operand : in) all_in += operand.element();
  const std::size_t through_slots = bytes_of(Source::file) + bytes_of(Source::pageable) +
                                    (out.source == Source::reachable ? 0 : out.element());
  // Bytes that an element of a piece costs, on the device and in slots.
  const std::size_t on_device = on_cpu ? 0 : options.depth * (all_in + out.element());
  const std::size_t in_slots = options.host_depth * through_slots;

  const auto most = [](std::size_t bytes, std::size_t each) {
    return each == 0 ? ~std::size_t{0} : bytes / each / granule * granule;
  };
  const std::size_t fits =
      std::min(most(options.device_bytes, on_device), most(options.pinned_bytes, in_slots));
  if (fits == 0) {
    const bool device = most(options.device_bytes, on_device) == 0;
    detail::throw_invalid(device ? "device_bytes" : "pinned_bytes",
                          "at least " + format_bytes(granule * (device ? on_device : in_slots)) +
                              " for pieces of 4096 elements at this depth",
                          format_bytes(device ? options.device_bytes : options.pinned_bytes));
  }
  piece = options.piece;
  if (piece == 0) {
    const bool direct = in_slots == 0 && !on_cpu;
    const std::size_t target = (direct ? 16 : 4) * MiB;
    piece = target / std::max(all_in, out.element());
    // A short row is cut too, or nothing would overlap.
    const std::size_t cut = ceil_div(options.elements, 8 * options.depth);
    piece = std::max(std::min(piece, cut), granule);
    piece = std::min(align_up(piece, granule, "elements"), fits);
  }
  if (piece % granule != 0) {
    detail::throw_invalid("piece", "a multiple of 4096 elements", std::to_string(piece));
  }
  if (piece > fits) {
    detail::throw_invalid(
        "piece", fmt::format("at most {} elements, or more device_bytes or pinned_bytes", fits),
        std::to_string(piece));
  }
  pieces = ceil_div(options.elements, piece);
  device_total = on_device * piece;
  pinned_total = in_slots * piece;

  std::size_t slot[2] = {}, device = 0;
  for (Operand& operand : in) {
    operand.in_device = device;
    device += piece * operand.element();
    if (operand.source == Source::reachable) continue;
    std::size_t& before = slot[operand.source == Source::file ? 1 : 0];
    operand.in_slot = before;
    before += piece * operand.element();
  }
}

void StreamedTransform::State::open_files() {
  for (Operand& operand : in) {
    if (operand.source != Source::file) continue;
    operand.file.emplace(operand.given.file);
    const std::uint64_t end =
        checked_add(operand.given.offset, options.elements * operand.element(), "offset");
    if (operand.file->size() < end) {
      detail::throw_invalid(
          operand.name + ".file",
          fmt::format("at least {} bytes, {} of {} from byte {} on", end, options.elements,
                      name(operand.given.dtype), operand.given.offset),
          fmt::format("'{}' with {} bytes", operand.given.file.string(), operand.file->size()));
    }
  }
  if (out.source == Source::file)
    out.file.emplace(out.given.file, FileOptions{.mode = FileMode::write});
}

void StreamedTransform::State::build() {
  pipeline = Pipeline({.device = options.device, .depth = options.depth});
  std::optional<RingId> read, filled;
  std::vector<StageId> before;
  if (const std::size_t bytes = bytes_of(Source::file); bytes > 0) {
    read = pipeline->ring("from files", {.bytes = bytes * piece, .depth = options.host_depth});
    before.push_back(pipeline->async_stage(
        "read", {.uses = {*read}, .engine = Engine::disk},
        [this, slots = *read](Item& item, const Completion& done) {
          const auto from_file = [](const Operand& o) { return o.source == Source::file; };
          const detail::JoinedTransfers all(
              static_cast<std::size_t>(std::ranges::count_if(in, from_file)), done);
          for (const Operand& operand : in) {
            if (!from_file(operand)) continue;
            try {
              operand.file->read(operand.given.offset + item.index() * piece * operand.element(),
                                 in_slot(operand, item.slot(slots), operand.in_slot, item.index()),
                                 all.one());
            } catch (...) {  // the others are under way and must end first
              all.one()(std::current_exception());
            }
          }
        }));
  }
  if (const std::size_t bytes = bytes_of(Source::pageable); bytes > 0) {
    filled = pipeline->ring("from memory", {.bytes = bytes * piece, .depth = options.host_depth});
    before.push_back(pipeline->async_stage(
        "fill", {.uses = {*filled}}, [this, slots = *filled](Item& item, const Completion& done) {
          std::vector<detail::HostCopy> copies;
          for (const Operand& operand : in) {
            if (operand.source != Source::pageable) continue;
            const MemoryView from = in_memory(operand, item.index());
            const MemoryView to = in_slot(operand, item.slot(slots), operand.in_slot, item.index());
            copies.push_back({to.data, from.data, from.bytes, true});
          }
          detail::copy_on_cores(copies, done);
        }));
  }
  add_work(before, read, filled);
}

void StreamedTransform::State::add_work(const std::vector<StageId>& before,
                                        std::optional<RingId> read, std::optional<RingId> filled) {
  const auto given = [](std::initializer_list<std::optional<RingId>> rings) {
    std::vector<RingId> there;
    for (const auto& ring : rings) {
      if (ring) there.push_back(*ring);
    }
    return there;
  };
  // Where an input is on the host when it is a piece's turn.
  const auto on_host = [this, read, filled](const Operand& operand, const Item& item) {
    if (operand.source == Source::reachable) return in_memory(operand, item.index());
    const RingId ring = operand.source == Source::file ? *read : *filled;
    return in_slot(operand, item.slot(ring), operand.in_slot, item.index());
  };
  const auto view = [](const Operand& operand, MemoryView memory) {
    return TensorView(memory.data, operand.given.dtype,
                      {static_cast<std::int64_t>(memory.bytes / operand.element())}, memory.place);
  };

  std::optional<RingId> emptied;
  if (out.source != Source::reachable) {
    emptied = pipeline->ring("to the host",
                             {.bytes = out.element() * piece, .depth = options.host_depth});
  }
  const auto out_on_host = [this, emptied](const Item& item) {
    return emptied ? in_slot(out, item.slot(*emptied), 0, item.index())
                   : in_memory(out, item.index());
  };

  StageId last;
  if (on_cpu) {
    last = pipeline->stage(
        "compute", {.after = before, .uses = given({read, emptied})},
        [this, on_host, out_on_host, view](Item& item) {
          std::vector<TensorView> views;
          for (const Operand& operand : in) views.push_back(view(operand, on_host(operand, item)));
          options.function(
              {.in = views, .out = view(out, out_on_host(item)), .first = item.index() * piece},
              item.stream());
        });
  } else {
    std::size_t all_in = 0;
    for (const Operand& operand : in) all_in += operand.element();
    const RingId up = pipeline->ring("inputs", {.memory = Memory::device, .bytes = all_in * piece});
    const RingId down =
        pipeline->ring("results", {.memory = Memory::device, .bytes = out.element() * piece});
    const StageId upload = pipeline->stage(
        "upload", {.after = before, .uses = given({read, filled, up}), .engine = Engine::upload},
        [this, up, on_host](Item& item) {
          for (const Operand& operand : in) {
            copy(in_slot(operand, item.slot(up), operand.in_device, item.index()),
                 on_host(operand, item), item.stream());
          }
        });
    const StageId compute = pipeline->stage(
        "compute", {.after = {upload}, .uses = {up, down}}, [this, up, down, view](Item& item) {
          std::vector<TensorView> views;
          for (const Operand& operand : in) {
            views.push_back(
                view(operand, in_slot(operand, item.slot(up), operand.in_device, item.index())));
          }
          options.function({.in = views,
                            .out = view(out, in_slot(out, item.slot(down), 0, item.index())),
                            .first = item.index() * piece},
                           item.stream());
        });
    last = pipeline->stage(
        "download",
        {.after = {compute}, .uses = given({down, emptied}), .engine = Engine::download},
        [this, down, out_on_host](Item& item) {
          copy(out_on_host(item), in_slot(out, item.slot(down), 0, item.index()), item.stream());
        });
  }

  if (out.source == Source::file) {
    pipeline->async_stage("write", {.after = {last}, .uses = {*emptied}, .engine = Engine::disk},
                          [this, out_on_host](Item& item, const Completion& done) {
                            out.file->write(item.index() * piece * out.element(), out_on_host(item),
                                            done);
                          });
  } else if (out.source == Source::pageable) {
    pipeline->async_stage("empty", {.after = {last}, .uses = {*emptied}},
                          [this, out_on_host](Item& item, const Completion& done) {
                            const MemoryView from = out_on_host(item);
                            detail::copy_on_cores(
                                {{in_memory(out, item.index()).data, from.data, from.bytes, false}},
                                done);
                          });
  }
}

RunReport StreamedTransform::State::run(const StreamedRun& run) {
  RunReport report;
  if (pipeline) {
    report = pipeline->run({.items = pieces,
                            .stop = run.stop,
                            .progress = run.progress,
                            .recorder = run.recorder,
                            .after = run.after});
  } else if (run.progress) {
    run.progress({});
  }
  if (run.flush && out.file && !report.cancelled) out.file->flush();
  return report;
}

StreamedTransform::StreamedTransform(StreamedTransformOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
StreamedTransform::~StreamedTransform() = default;
StreamedTransform::StreamedTransform(StreamedTransform&&) noexcept = default;
StreamedTransform& StreamedTransform::operator=(StreamedTransform&&) noexcept = default;

RunReport StreamedTransform::run(const StreamedRun& run) { return state_->run(run); }

std::size_t StreamedTransform::piece() const { return state_->piece; }
std::uint64_t StreamedTransform::pieces() const { return state_->pieces; }
std::size_t StreamedTransform::device_bytes() const { return state_->device_total; }
std::size_t StreamedTransform::pinned_bytes() const { return state_->pinned_total; }

}  // namespace ps
