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
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/parallel.h"
#include "penstock/host/storage.h"
#include "penstock/measure/timing.h"
#include "penstock/ops/transform.h"
#include "penstock/outofcore/transform.h"
#include "support/in_turn.h"

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

// One share a thread, as the ceiling of host memory is measured.
void copy_on_all_cores(ps::MemoryView to, ps::MemoryView from) {
  const std::size_t share = from.bytes / ps::parallel_threads() + 1;
  ps::parallel_ranges(from.bytes, share, [&](std::size_t begin, std::size_t end) {
    std::memcpy(to.data + begin, from.data + begin, end - begin);
  });
}

// Past the caches: where memcpy uses ordinary stores, at any length, this moves a third more, and
// is what memory itself can do.
void stream_on_all_cores(ps::MemoryView to, ps::MemoryView from) {
  ps::parallel_ranges(from.bytes, from.bytes / ps::parallel_threads() / 64 * 64 + 64,
                      [&](std::size_t begin, std::size_t end) {
                        ps::detail::copy_past_caches(to.data + begin, from.data + begin,
                                                     end - begin);
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

std::vector<double> medians_in_turn(int turns, const std::vector<std::function<void()>>& runs) {
  std::vector<double> medians;
  for (auto& each : in_turn(turns, runs)) medians.push_back(ps::median(std::move(each)));
  return medians;
}

Json case_of(const std::string& name, Json params, double ours, double floor, Json metrics) {
  fmt::print("{:<24} {:>9}  {:.3f} of its limit, {}\n", name, ps::format_seconds(ours),
             floor / ours, ps::format_seconds(floor));
  metrics["of_floor"] = floor / ours;
  return {{"case", name},
          {"params", std::move(params)},
          {"correct", true},
          {"max_error", 0},
          {"tolerance", 0},
          {"floor_us", microseconds(floor)},
          {"ours", {{"call_us", microseconds(ours)}}},
          {"peer", Json::object()},
          {"metrics", std::move(metrics)}};
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

// Both directions at once with nothing between them, in copies as large as they can be.
class BothWays {
 public:
  BothWays(const ps::Device& device, ps::MemoryView up, ps::MemoryView down)
      : up_(up),
        down_(down),
        chunk_(std::min(up.bytes, 256 * ps::MiB)),
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

void through_memory(const TransformHostOptions& options, Results& results) {
  const ps::PinnedBuffer in(options.device, options.bytes), out(options.device, options.bytes);
  fill_floats(in.view());
  const BothWays link(options.device, in.view(), out.view());
  const auto checked = [&](const std::string& name, ps::StreamedTransform& streamed,
                           ps::MemoryView from, ps::MemoryView to) {
    poison(to);
    streamed.run({});
    check_scaled(to, from, name);
  };
  {
    auto streamed = scaled(options, {.memory = in.view()}, {.memory = out.view()}, options.bytes);
    checked("stream page-locked", streamed, in.view(), out.view());
    const auto seconds =
        medians_in_turn(options.turns, {[&] { streamed.run({}); }, [&] { link.run(); }});
    results.add(case_of("stream page-locked", sizes(streamed, options.bytes), seconds[0],
                        seconds[1], {{"both_ways_us", microseconds(seconds[1])}}));
  }
  Pageable from(options.bytes), to(options.bytes);
  copy_on_all_cores(from.view(), in.view());
  auto streamed = scaled(options, {.memory = from.view()}, {.memory = to.view()}, options.bytes);
  checked("stream pageable", streamed, from.view(), to.view());
  const auto seconds =
      medians_in_turn(options.turns, {[&] { streamed.run({}); }, [&] { link.run(); },
                                      [&] {  // what has to be copied in and out
                                        copy_on_all_cores(in.view(), from.view());
                                        copy_on_all_cores(to.view(), out.view());
                                      }});
  results.add(case_of(
      "stream pageable", sizes(streamed, options.bytes), seconds[0],
      std::max(seconds[1], seconds[2]),
      {{"both_ways_us", microseconds(seconds[1])}, {"memcpy_us", microseconds(seconds[2])}}));
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

  // The disk with the same transfers and nothing between them: one way, the other, both at once.
  const ps::File reader(in.get());
  const ps::File writer(other.get(), {.mode = ps::FileMode::write});
  const auto read = [&] { reader.read(0, back.view()); };
  const auto write = [&] {
    writer.write(0, data.view());
    writer.flush();
  };
  const auto both = [&] {
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
  const auto seconds =
      medians_in_turn(options.turns, {[&] { streamed.run({.flush = true}); }, read, write, both});
  const double floor = std::max({seconds[1], seconds[2], seconds[3]});
  results.add(case_of("stream files", sizes(streamed, bytes), seconds[0], floor,
                      {{"read_us", microseconds(seconds[1])},
                       {"write_us", microseconds(seconds[2])},
                       {"both_us", microseconds(seconds[3])},
                       {"direct", reader.direct() && writer.direct()}}));
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
    // As many bytes read and written in the same turns: by memcpy, and past the caches. The
    // machine's ceiling was measured before, when it may have been another machine: it stands
    // beside.
    const std::size_t moved = (each.inputs * element + ps::size_of(each.out)) * count;
    const ps::MemoryView to = target.view().sub(0, moved / 2),
                         from = source.view().sub(0, moved / 2);
    const auto seconds = medians_in_turn(
        std::max(options.turns, 9),
        {run, [&] { copy_on_all_cores(to, from); }, [&] { stream_on_all_cores(to, from); }});
    fmt::print("{:<24} {:.3f} of memcpy\n", each.name, seconds[1] / seconds[0]);
    Json metrics = {{"bytes", moved},
                    {"of_memcpy", seconds[1] / seconds[0]},
                    {"memcpy_us", microseconds(seconds[1])},
                    {"streamed_copy_us", microseconds(seconds[2])}};
    if (options.host_copy > 0) {
      metrics["of_host_copy"] = static_cast<double>(moved) / options.host_copy / seconds[0];
    }
    results.add(case_of(each.name, {{"elements", count}, {"threads", ps::parallel_threads()}},
                        seconds[0], std::min(seconds[1], seconds[2]), std::move(metrics)));
  }
}

}  // namespace bench
