// How long it takes to get page-locked memory: a PinnedBuffer, a PinnedArena until all of it may be
// used, and cudaHostAlloc, in interleaved runs. Writes bench/results/page_locking.json.
//
//   bench_page_locking --output bench/results/page_locking.json
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/device.h"
#include "penstock/host/pinned_arena.h"
#include "penstock/host/stream.h"
#include "penstock/measure/limits.h"
#include "penstock/measure/timing.h"
#include "support/guarded.h"
#include "support/results.h"

namespace {

using bench::Json;

struct Settings {
  std::string output, device = "best";
  std::vector<std::size_t> gibibytes{1, 8};
  int turns = 5;
};

// One way to get memory. Only get() is timed.
struct Way {
  std::string name;
  std::function<ps::MemoryView()> get;
  std::function<void()> free;
  std::vector<double> seconds{};
};

void expect(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// The GPU reads and writes both ends of the memory.
void check(const std::string& name, const ps::MemoryView& memory, const ps::DeviceBuffer& there,
           const ps::Stream& stream) {
  for (const std::size_t begin : {std::size_t{0}, memory.bytes - there.bytes()}) {
    const ps::MemoryView end = memory.sub(begin, there.bytes());
    std::memset(end.data, 0x5a, end.bytes);
    ps::copy(there.view(), end, stream);
    stream.synchronize();
    std::memset(end.data, 0, end.bytes);
    ps::copy(end, there.view(), stream);
    stream.synchronize();
    for (std::size_t i = 0; i < end.bytes; ++i) {
      if (end.data[i] != std::byte{0x5a}) {
        throw std::runtime_error(fmt::format("{}: byte {} came back wrong", name, begin + i));
      }
    }
  }
}

void measure(const Settings& settings, const ps::Device& device, std::size_t bytes,
             bench::Results& results) {
  std::optional<ps::PinnedBuffer> buffer;
  std::optional<ps::PinnedArena> arena;
  void* allocated = nullptr;
  std::vector<double> first_piece;
  std::array<Way, 3> ways{
      Way{"PinnedBuffer",
          [&] {
            buffer.emplace(device, bytes);
            return buffer->view();
          },
          [&] { buffer.reset(); }},
      Way{"PinnedArena",
          [&] {
            first_piece.push_back(ps::seconds_of([&] {
              arena.emplace(device, ps::PinnedArenaOptions{.bytes = bytes});
              arena->wait(arena->piece_bytes());
            }));
            arena->wait(bytes);
            return arena->view();
          },
          [&] { arena.reset(); }},
      Way{"cudaHostAlloc",
          [&] {
            expect(cudaHostAlloc(&allocated, bytes, cudaHostAllocPortable));
            return ps::MemoryView{static_cast<std::byte*>(allocated), bytes, {ps::Memory::pinned}};
          },
          [&] { expect(cudaFreeHost(std::exchange(allocated, nullptr))); }}};
  const ps::DeviceBuffer there(device, ps::MiB);
  const ps::Stream stream(device);
  for (int turn = 0; turn <= settings.turns; ++turn) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      Way& way = ways[turn % 2 == 0 ? i : ways.size() - 1 - i];
      ps::MemoryView memory{};
      const double seconds = ps::seconds_of([&] { memory = way.get(); });
      check(way.name, memory, there, stream);
      way.free();
      if (turn > 0) way.seconds.push_back(seconds);
    }
  }
  const double peer = ps::median(ways[2].seconds);
  for (std::size_t i = 0; i < 2; ++i) {
    const Way& way = ways[i];
    const double ours = ps::median(way.seconds);
    const std::string name = fmt::format("{}, {} GiB", way.name, bytes / ps::GiB);
    fmt::print("{:<24} {:>10}, {:.2f} x as fast as cudaHostAlloc\n", name, ps::format_seconds(ours),
               peer / ours);
    Json metrics{{"GBps", static_cast<double>(bytes) / ours * 1e-9}};
    if (way.name == "PinnedArena") {
      metrics["first_piece_us"] = bench::microseconds(ps::median(first_piece));
    }
    results.add({{"case", name},
                 {"params", {{"bytes", bytes}}},
                 {"correct", true},
                 {"max_error", 0},
                 {"tolerance", 0},
                 {"ours", {{"call_us", bench::microseconds(ours)}}},
                 {"peer", {{"cudaHostAlloc", {{"call_us", bench::microseconds(peer)}}}}},
                 {"metrics", std::move(metrics)}});
  }
}

void run(const Settings& settings) {
  const ps::Device device = ps::Device::parse(settings.device);
  if (device.kind() != ps::DeviceKind::cuda) throw std::runtime_error("needs a GPU");
  expect(cudaSetDevice(device.index()));
  ps::LimitsOptions limits = ps::quick_limits();
  limits.disk = false;
  bench::Results results("page_locking", device, ps::measure_limits(device, limits));
  int version = 0;
  expect(cudaRuntimeGetVersion(&version));
  results.peer("cudaHostAlloc", fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10));
  for (const std::size_t count : settings.gibibytes) {
    measure(settings, device, count * ps::GiB, results);
  }
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("How long it takes to get page-locked memory");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--device", settings.device, "cuda, cuda:N or best");
  app.add_option("--gib", settings.gibibytes, "Sizes in GiB")->check(CLI::Range(1, 1024));
  app.add_option("--turns", settings.turns, "Timed runs of each way")->check(CLI::Range(1, 100));
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_page_locking", [&] { run(settings); });
}
