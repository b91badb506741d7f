#include "support/transform_host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "host/copy_past_caches.h"
#include "penstock/base/checked.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/parallel.h"
#include "penstock/host/pipeline.h"
#include "penstock/host/storage.h"
#include "penstock/measure/timing.h"
#include "penstock/ops/transform.h"
#include "penstock/outofcore/transform.h"
#include "support/in_turn.h"
#include "support/memory_mix.h"

namespace bench {
namespace {

constexpr float factor = 1.5F;

// Ordinary memory, every page of it there.
class Pageable {
 public:
  explicit Pageable(std::size_t bytes) : bytes_(bytes) {}
  ps::MemoryView view() { return {bytes_.data(), bytes_.size(), {}}; }

 private:
  std::vector<std::byte> bytes_;
};

using CopyRange = void (*)(void* to, const void* from, std::size_t bytes);

void copy_cached(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

// Both ways to copy: which is faster depends on the machine and on who reads the bytes next.
constexpr CopyRange both_copies[] = {copy_cached, ps::detail::copy_past_caches};

// One share per thread, as the ceiling of host memory is measured.
void copy_on_all_cores(ps::MemoryView to, ps::MemoryView from, CopyRange copy = copy_cached) {
  ps::parallel_ranges(from.bytes, from.bytes / ps::parallel_threads() / 64 * 64 + 64,
                      [&](std::size_t begin, std::size_t end) {
                        copy(to.data + begin, from.data + begin, end - begin);
                      });
}

// Different numbers near 1, as f32 and as bf16; zeros would move faster.
void fill_floats(ps::MemoryView memory) {
  ps::parallel_ranges(memory.bytes / 4, 1 << 20, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const auto mixed = static_cast<std::uint32_t>(i * 2654435761U);
      memory.as<std::uint32_t>()[i] = 0x3F803F80U | (mixed >> 8 & 0x7F007FU);
    }
  });
}

void poison(ps::MemoryView memory) {
  ps::parallel_ranges(memory.bytes, ps::MiB, [&](std::size_t begin, std::size_t end) {
    std::memset(memory.data + begin, 0xFF, end - begin);
  });
}

// Every element, on all cores; NaN is wrong.
void check_scaled(ps::MemoryView out, ps::MemoryView in, const std::string& name) {
  ps::parallel_ranges(in.bytes / 4, 1 << 20, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (!(out.as<float>()[i] == factor * in.as<float>()[i])) {
        throw std::runtime_error(fmt::format("{}: element {} is wrong", name, i));
      }
    }
  });
}

// Ours, as the median of its runs, and one engine alone or several: the best pass of all its ways.
struct Timed {
  double ours = 0;
  std::vector<double> alone;
};

// Interleaves ours with every way to run each engine alone. The engine whose best way is slowest is
// the floor.
Timed timed_with(int turns, const std::function<void()>& ours,
                 const std::vector<std::vector<std::function<void()>>>& engines) {
  std::vector<std::function<void()>> runs{ours};
  for (const auto& ways : engines) runs.insert(runs.end(), ways.begin(), ways.end());
  std::vector<std::vector<double>> seconds = in_turn(turns, runs);
  Timed timed{.ours = ps::median(seconds[0]), .alone = {}};
  auto next = seconds.begin() + 1;
  for (const auto& ways : engines) {
    const auto end = next + static_cast<std::ptrdiff_t>(ways.size());
    timed.alone.push_back(floor_of({next, end}).seconds());
    next = end;
  }
  return timed;
}

void add_case(Results& results, const std::string& name, Json params, const Timed& timed,
              Json metrics) {
  const double floor = *std::ranges::max_element(timed.alone);
  metrics["over_floor"] = timed.ours / floor;
  const bool kept = results.add({{"case", name},
                                 {"params", std::move(params)},
                                 {"correct", true},
                                 {"max_error", 0},
                                 {"tolerance", 0},
                                 {"floor_us", microseconds(floor)},
                                 {"ours", {{"call_us", microseconds(timed.ours)}}},
                                 {"peer", Json::object()},
                                 {"metrics", std::move(metrics)}});
  if (!kept) return;
  fmt::print("{:<24} {:>9}, {:.3f} x its floor of {}\n", name, ps::format_seconds(timed.ours),
             timed.ours / floor, ps::format_seconds(floor));
}

ps::StreamedTransform scaled(const TransformHostOptions& options, ps::StreamedOperand in,
                             ps::StreamedOperand out, std::size_t bytes) {
  in.dtype = out.dtype = ps::DType::f32;
  return ps::StreamedTransform(
      {.in = {std::move(in)},
       .out = std::move(out),
       .elements = bytes / 4,
       .function =
           [](const ps::Piece& piece, const ps::Stream& stream) {
             ps::scale({.in = piece.in[0], .out = piece.out, .factor = factor}, stream);
           },
       .device = options.device,
       .device_bytes = options.device_bytes});
}

// Both directions at once with nothing between them, in copies of `chunk` bytes.
class BothWays {
 public:
  BothWays(const ps::Device& device, ps::MemoryView up, ps::MemoryView down, std::size_t chunk)
      : up_(up),
        down_(down),
        chunk_(std::min(up.bytes, chunk)),
        there_(device, chunk_),
        back_(device, chunk_),
        uploads_(device),
        downloads_(device) {}

  void run() const {
    for (std::size_t at = 0; at < up_.bytes; at += chunk_) {
      const std::size_t bytes = std::min(chunk_, up_.bytes - at);
      ps::copy(there_.view().sub(0, bytes), up_.sub(at, bytes), uploads_);
      ps::copy(down_.sub(at, bytes), back_.view().sub(0, bytes), downloads_);
    }
    uploads_.synchronize();
    downloads_.synchronize();
  }

 private:
  ps::MemoryView up_, down_;
  std::size_t chunk_;
  ps::DeviceBuffer there_, back_;
  ps::Stream uploads_, downloads_;
};

Json sizes(const ps::StreamedTransform& streamed, std::size_t bytes) {
  return {{"bytes_each_way", bytes},
          {"piece_bytes", streamed.piece() * 4},
          {"pieces", streamed.pieces()},
          {"device_bytes", streamed.device_bytes()},
          {"pinned_bytes", streamed.pinned_bytes()}};
}

// Ordinary memory into page-locked slots and from there into ordinary memory, as the streaming
// does it: a cache may hold the slots.
void copy_through_slots(ps::MemoryView to, ps::MemoryView slots, ps::MemoryView from,
                        std::size_t slot, CopyRange copy) {
  for (std::size_t at = 0; at < from.bytes; at += slot) {
    const std::size_t bytes = std::min(slot, from.bytes - at);
    const ps::MemoryView here = slots.sub(at % slots.bytes, bytes);
    copy_on_all_cores(here, from.sub(at, bytes));
    copy_on_all_cores(to.sub(at, bytes), here, copy);
  }
}

// The same with half of the threads on each side at once: they fill a slot while the others empty
// the slot before it.
void copy_through_slots_at_once(ps::MemoryView to, ps::MemoryView slots, ps::MemoryView from,
                                std::size_t slot, CopyRange copy) {
  const std::size_t count = ps::ceil_div(from.bytes, slot);
  const std::size_t shares = std::max<std::size_t>(ps::parallel_threads() / 2, 1);  // of a slot
  const std::size_t share = ps::ceil_div(slot, shares * 64) * 64;
  for (std::size_t turn = 0; turn <= count; ++turn) {
    ps::parallel_ranges(2 * shares, 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        const bool empties = i % 2 == 1;
        if (empties ? turn == 0 : turn == count) continue;
        const std::size_t at = (empties ? turn - 1 : turn) * slot, inside = i / 2 * share;
        const std::size_t bytes = std::min(slot, from.bytes - at);
        if (inside >= bytes) continue;
        const std::size_t length = std::min(share, bytes - inside);
        std::byte* const here = slots.data + at % slots.bytes + inside;
        if (empties) {
          copy(to.data + at + inside, here, length);
        } else {
          copy_cached(here, from.data + at + inside, length);
        }
      }
    });
  }
}

void through_memory(const TransformHostOptions& options, Results& results) {
  const ps::PinnedBuffer in(options.device, options.bytes), out(options.device, options.bytes);
  fill_floats(in.view());
  const BothWays large(options.device, in.view(), out.view(), 256 * ps::MiB);
  const BothWays small(options.device, in.view(), out.view(), 32 * ps::MiB);
  const std::vector<std::function<void()>> link{[&] { large.run(); }, [&] { small.run(); }};
  const auto checked = [&](const std::string& name, ps::StreamedTransform& streamed,
                           ps::MemoryView from, ps::MemoryView to) {
    poison(to);
    streamed.run({});
    check_scaled(to, from, name);
  };
  {
    auto streamed = scaled(options, {.memory = in.view()}, {.memory = out.view()}, options.bytes);
    checked("stream page-locked", streamed, in.view(), out.view());
    const Timed timed = timed_with(options.turns, [&] { streamed.run({}); }, {link});
    add_case(results, "stream page-locked", sizes(streamed, options.bytes), timed,
             {{"both_ways_us", microseconds(timed.alone[0])}});
  }
  Pageable from(options.bytes), to(options.bytes);
  copy_on_all_cores(from.view(), in.view());
  auto streamed = scaled(options, {.memory = from.view()}, {.memory = to.view()}, options.bytes);
  checked("stream pageable", streamed, from.view(), to.view());
  std::vector<std::function<void()>> copies;  // what has to be copied in and out
  const std::size_t slot = std::min(streamed.piece() * sizeof(float), options.bytes / 4);
  for (const CopyRange copy : both_copies) {
    copies.emplace_back([&, copy] {
      copy_on_all_cores(in.view(), from.view(), copy);
      copy_on_all_cores(to.view(), out.view(), copy);
    });
    copies.emplace_back([&, copy, slot] {
      copy_through_slots(to.view(), out.view().sub(0, 4 * slot), from.view(), slot, copy);
    });
    copies.emplace_back([&, copy, slot] {
      copy_through_slots_at_once(to.view(), out.view().sub(0, 4 * slot), from.view(), slot, copy);
    });
  }
  const Timed timed = timed_with(options.turns, [&] { streamed.run({}); }, {link, copies});
  add_case(results, "stream pageable", sizes(streamed, options.bytes), timed,
           {{"both_ways_us", microseconds(timed.alone[0])},
            {"host_copies_us", microseconds(timed.alone[1])}});
}

// A file that goes away with this object.
class ScratchPath {
 public:
  ScratchPath(const std::filesystem::path& directory, const std::string& name)
      : path_(directory / fmt::format("penstock-bench-{}-{}", getpid(), name)) {}
  ~ScratchPath() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ScratchPath(const ScratchPath&) = delete;
  ScratchPath& operator=(const ScratchPath&) = delete;
  const std::filesystem::path& get() const { return path_; }

 private:
  std::filesystem::path path_;
};

// One file into another through slots of page-locked memory, and flushed.
class FileCopy {
 public:
  FileCopy(const std::filesystem::path& from, const std::filesystem::path& to, std::size_t bytes,
           std::size_t chunk)
      : reader_(from),
        writer_(to, {.mode = ps::FileMode::write}),
        bytes_(bytes),
        chunk_(chunk),
        pipeline_({.device = ps::Device::cpu(), .depth = 8}) {
    const ps::RingId slots = pipeline_.ring("slots", {.bytes = chunk});
    const auto part = [this, slots](ps::Item& item) {
      const std::size_t at = item.index() * chunk_;
      return std::pair(at, item.slot(slots).sub(0, std::min(chunk_, bytes_ - at)));
    };
    const ps::StageId read =
        pipeline_.async_stage("read", {.uses = {slots}, .engine = ps::Engine::disk},
                              [this, part](ps::Item& item, const ps::Completion& done) {
                                const auto [at, memory] = part(item);
                                reader_.read(at, memory, done);
                              });
    pipeline_.async_stage("write", {.after = {read}, .uses = {slots}, .engine = ps::Engine::disk},
                          [this, part](ps::Item& item, const ps::Completion& done) {
                            const auto [at, memory] = part(item);
                            writer_.write(at, memory, done);
                          });
  }

  void run() {
    pipeline_.run({.items = ps::ceil_div(bytes_, chunk_)});
    writer_.flush();
  }

 private:
  ps::File reader_, writer_;
  std::size_t bytes_, chunk_;
  ps::Pipeline pipeline_;
};

void through_files(const TransformHostOptions& options, Results& results) {
  const std::size_t bytes = options.file_bytes;
  const ps::PinnedBuffer data(options.device, bytes), back(options.device, bytes);
  const ScratchPath in(options.directory, "in"), out(options.directory, "out"),
      other(options.directory, "other");
  fill_floats(data.view());
  {
    const ps::File file(in.get(), {.mode = ps::FileMode::write});
    file.write(0, data.view());
    file.flush();
  }
  auto streamed = scaled(options, {.file = in.get()}, {.file = out.get()}, bytes);
  streamed.run({.flush = true});
  poison(back.view());
  ps::File(out.get()).read(0, back.view());
  check_scaled(back.view(), data.view(), "stream files");

  // The disk with the same bytes and nothing between them: one way, the other, and both, which goes
  // faster at once on some disks and one after the other on others.
  const ps::File reader(in.get());
  const ps::File writer(other.get(), {.mode = ps::FileMode::write});
  const auto read = [&] { reader.read(0, back.view()); };
  const auto write = [&] {
    writer.write(0, data.view());
    writer.flush();
  };
  const auto at_once = [&] {
    std::exception_ptr failure;
    std::atomic<bool> over{false};
    reader.read(0, back.view(), [&](const std::exception_ptr& failed) {
      failure = failed;
      over = true;
      over.notify_all();
    });
    write();
    over.wait(false);
    if (failure) std::rethrow_exception(failure);
  };
  const auto in_order = [&] {
    read();
    write();
  };
  FileCopy small(in.get(), other.get(), bytes, 4 * ps::MiB);
  FileCopy same(in.get(), other.get(), bytes, std::min(streamed.piece() * sizeof(float), bytes));
  const std::vector<std::function<void()>> both{at_once, in_order, [&] { small.run(); },
                                                [&] { same.run(); }};
  const Timed timed =
      timed_with(options.turns, [&] { streamed.run({.flush = true}); }, {{read}, {write}, both});
  add_case(results, "stream files", sizes(streamed, bytes), timed,
           {{"read_us", microseconds(timed.alone[0])},
            {"write_us", microseconds(timed.alone[1])},
            {"both_us", microseconds(timed.alone[2])},
            {"direct", reader.direct() && writer.direct()}});
}

// ---- The CPU -----------------------------------------------------------------------------------

struct CpuCase {
  std::string name;
  std::size_t inputs;
  ps::DType in, out;
  std::function<void(const std::vector<ps::TensorView>&, const ps::TensorView&, const ps::Stream&)>
      run;
  std::function<float(const std::vector<float>&)> exact;  // before it is rounded to the type
};

float as_float(const void* data, ps::DType type, std::size_t i) {
  if (type == ps::DType::f32) return static_cast<const float*>(data)[i];
  return std::bit_cast<float>(std::uint32_t{static_cast<const std::uint16_t*>(data)[i]} << 16);
}

void check_cpu(const CpuCase& each, const std::vector<ps::TensorView>& in,
               const ps::TensorView& out) {
  ps::parallel_ranges(
      static_cast<std::size_t>(out.elements()), 1 << 16, [&](std::size_t begin, std::size_t end) {
        std::vector<float> x(in.size());
        for (std::size_t i = begin; i < end; ++i) {
          for (std::size_t k = 0; k < in.size(); ++k) {
            x[k] = as_float(in[k].data(), in[k].dtype(), i);
          }
          const float wanted = each.exact(x), got = as_float(out.data(), out.dtype(), i);
          const float unit = std::ldexp(std::abs(wanted), each.out == ps::DType::f32 ? -23 : -8);
          if (!(std::abs(got - wanted) <= unit)) {
            throw std::runtime_error(fmt::format("{}: element {} is wrong", each.name, i));
          }
        }
      });
}

}  // namespace

void streamed_cases(const TransformHostOptions& options, Results& results) {
  through_memory(options, results);
  through_files(options, results);
}

void cpu_cases(const TransformHostOptions& options, Results& results) {
  using Views = std::vector<ps::TensorView>;
  const CpuCase all[] = {
      {"cpu cast f32 to bf16", 1, ps::DType::f32, ps::DType::bf16,
       [](const Views& in, const ps::TensorView& out, const ps::Stream& s) {
         ps::cast({.in = in[0], .out = out}, s);
       },
       [](const std::vector<float>& x) { return x[0]; }},
      {"cpu scale bf16", 1, ps::DType::bf16, ps::DType::bf16,
       [](const Views& in, const ps::TensorView& out, const ps::Stream& s) {
         ps::scale({.in = in[0], .out = out, .factor = factor}, s);
       },
       [](const std::vector<float>& x) { return factor * x[0]; }},
      {"cpu axpby f32", 2, ps::DType::f32, ps::DType::f32,
       [](const Views& in, const ps::TensorView& out, const ps::Stream& s) {
         ps::axpby({.x = in[0], .y = in[1], .out = out, .a = 0.3F, .b = 2.1F}, s);
       },
       [](const std::vector<float>& x) { return 0.3F * x[0] + 2.1F * x[1]; }},
      {"cpu add 3 f32", 3, ps::DType::f32, ps::DType::f32,
       [](const Views& in, const ps::TensorView& out, const ps::Stream& s) {
         ps::add({.in = in, .out = out}, s);
       },
       [](const std::vector<float>& x) { return x[0] + x[1] + x[2]; }},
  };
  const ps::Device cpu = ps::Device::cpu();
  const ps::Stream stream(cpu);
  const ps::PinnedBuffer source(cpu, options.cpu_bytes), target(cpu, options.cpu_bytes);
  fill_floats(source.view());
  for (const CpuCase& each : all) {
    const std::size_t element = ps::size_of(each.in);
    const std::size_t count = options.cpu_bytes / each.inputs / element / 4096 * 4096;
    const auto view = [&](const ps::PinnedBuffer& memory, std::size_t at, ps::DType type) {
      return ps::TensorView(memory.view().data + at, type, {static_cast<std::int64_t>(count)},
                            memory.view().place);
    };
    Views in;
    for (std::size_t i = 0; i < each.inputs; ++i) {
      in.push_back(view(source, i * count * element, each.in));
    }
    const ps::TensorView out = view(target, 0, each.out);
    const auto run = [&] {
      each.run(in, out, stream);
      stream.synchronize();
    };
    poison(target.view());
    run();
    check_cpu(each, in, out);
    // The same bytes in and out of the same memory, as fast as memory alone allows. memcpy of as
    // many bytes, half of them written, is a yardstick: it writes more, or less, than the case
    // does.
    const std::size_t read = each.inputs * element * count, written = ps::size_of(each.out) * count;
    std::vector<std::function<void()>> memory =
        memory_passes({.from = source.view().sub(0, read), .to = target.view().sub(0, written)});
    const std::size_t half = (read + written) / 2;
    const Timed timed = timed_with(
        std::max(options.turns, 9), run,
        {memory,
         {[&] { copy_on_all_cores(target.view().sub(0, half), source.view().sub(0, half)); }}});
    const double memcpy = timed.alone[1];
    Json metrics = {{"bytes", read + written},
                    {"of_memcpy", memcpy / timed.ours},
                    {"memcpy_us", microseconds(memcpy)}};
    if (options.host_copy > 0) {
      metrics["of_host_copy"] =
          static_cast<double>(read + written) / options.host_copy / timed.ours;
    }
    add_case(results, each.name, {{"elements", count}, {"threads", ps::parallel_threads()}},
             {.ours = timed.ours, .alone = {timed.alone[0]}}, std::move(metrics));
  }
}

}  // namespace bench
