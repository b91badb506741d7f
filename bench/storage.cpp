// A file read through the library into memory, and on into a GPU's. The floor is the best pass of
// the disk alone: loops written by hand over block sizes and numbers of reads in flight, into
// memory of the host and into memory that is page-locked for the GPU. The best of these loops by
// its median is the peer. Writes bench/results/storage.json.
//
//   bench_storage --dir /data --output bench/results/storage.json
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/pipeline.h"
#include "penstock/host/storage.h"
#include "penstock/measure/floor.h"
#include "penstock/measure/limits.h"
#include "penstock/measure/timing.h"
#include "support/bare_read.h"
#include "support/guarded.h"
#include "support/results.h"
#include "support/test_file.h"

namespace {

using bench::Json;
using bench::microseconds;

struct Settings {
  std::string output;
  std::filesystem::path directory = ".";
  std::size_t mebibytes = 1024;
  int repeats = 7;
};

// One way to read the whole file, and how long it took each time.
struct Way {
  std::string name;
  Json params;
  std::function<void()> run;
  std::vector<double> seconds{};
};

// The file through a pipeline's slots; every chunk is looked at.
class Flow {
 public:
  Flow(const std::filesystem::path& path, std::size_t bytes, std::size_t chunk, std::size_t depth,
       ps::FileEngine engine)
      : file_(path, {.engine = engine}),
        chunk_(chunk),
        chunks_(bytes / chunk),
        pipeline_({.device = ps::Device::cpu(), .depth = depth}) {
    const ps::RingId slots = pipeline_.ring("slots", {.bytes = chunk});
    const ps::StageId read =
        pipeline_.async_stage("read", {.uses = {slots}, .engine = ps::Engine::disk},
                              [this, slots](ps::Item& item, const ps::Completion& done) {
                                file_.read(item.index() * chunk_, item.slot(slots), done);
                              });
    pipeline_.host_stage("look", {.after = {read}, .uses = {slots}}, [this, slots](ps::Item& item) {
      for (const std::size_t at : {std::size_t{0}, chunk_ - sizeof(std::uint64_t)}) {
        std::uint64_t word = 0;
        std::memcpy(&word, item.slot(slots).data + at, sizeof(word));
        if (word != item.index() * chunk_ + at) throw std::runtime_error("wrong bytes were read");
      }
    });
  }

  void run() { pipeline_.run({.items = chunks_}); }
  bool direct() const { return file_.direct(); }
  ps::FileEngine engine() const { return file_.engine(); }

 private:
  ps::File file_;
  std::size_t chunk_, chunks_;
  ps::Pipeline pipeline_;
};

// The file through page-locked slots into the memory of a GPU.
class ToDevice {
 public:
  ToDevice(const std::filesystem::path& path, std::size_t bytes, std::size_t chunk,
           std::size_t depth, const ps::Device& device)
      : file_(path),
        chunk_(chunk),
        chunks_(bytes / chunk),
        memory_(device, bytes),
        stream_(device),
        pipeline_({.device = device, .depth = depth}) {
    const ps::RingId slots = pipeline_.ring("slots", {.bytes = chunk});
    const ps::StageId read =
        pipeline_.async_stage("read", {.uses = {slots}, .engine = ps::Engine::disk},
                              [this, slots](ps::Item& item, const ps::Completion& done) {
                                file_.read(item.index() * chunk_, item.slot(slots), done);
                              });
    pipeline_.stage("upload", {.after = {read}, .uses = {slots}, .engine = ps::Engine::upload},
                    [this, slots](ps::Item& item) {
                      ps::copy(memory_.view().sub(item.index() * chunk_, chunk_), item.slot(slots),
                               item.stream());
                    });
  }

  void run() { pipeline_.run({.items = chunks_}); }

  // The same bytes over the link alone.
  void link_pass(ps::MemoryView host) const {
    for (std::size_t i = 0; i < chunks_; ++i) {
      ps::copy(memory_.view().sub(i * chunk_, chunk_), host.sub(0, chunk_), stream_);
    }
    stream_.synchronize();
  }

  // Every word on the device says where in the file it belongs.
  void check(ps::MemoryView host) {
    ps::fill(memory_.view(), 0xff, stream_);
    stream_.synchronize();
    run();
    for (std::size_t at = 0; at < memory_.bytes(); at += chunk_) {
      ps::copy(host.sub(0, chunk_), memory_.view().sub(at, chunk_), stream_);
      stream_.synchronize();
      for (std::size_t i = 0; i < chunk_; i += sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, host.data + i, sizeof(word));
        if (word != at + i) throw std::runtime_error("wrong bytes arrived on the device");
      }
    }
  }

 private:
  ps::File file_;
  std::size_t chunk_, chunks_;
  ps::DeviceBuffer memory_;
  ps::Stream stream_;
  ps::Pipeline pipeline_;
};

// All bytes of the file into the same memory again and again, by system calls alone.
std::vector<Way> bare_ways(int fd, std::size_t bytes, const ps::PinnedBuffer& memory,
                           const char* name) {
  std::vector<Way> ways;
  for (const std::size_t block : {1, 4, 16}) {
    for (const std::size_t in_flight : {1, 4, 8, 16, 32}) {
      const bench::BareRead work{fd, bytes, block * ps::MiB, in_flight, memory.view().data};
      const Json params = {{"block", work.block}, {"in_flight", in_flight}, {"memory", name}};
      ways.push_back({"bare threads", params, [work] { bench::read_by_threads(work); }});
      if (bench::read_by_uring({fd, work.block, work.block, 1, work.memory})) {
        ways.push_back({"bare io_uring", params, [work] { bench::read_by_uring(work); }});
      }
    }
  }
  return ways;
}

void run(const Settings& settings) {
  const std::size_t bytes = settings.mebibytes * ps::MiB / (16 * ps::MiB) * (16 * ps::MiB);
  if (bytes == 0)
    throw ps::InvalidArgument("mib", "at least 16", std::to_string(settings.mebibytes));
  const bench::TestFile file(settings.directory, bytes);
  const int fd = open(file.path().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) throw ps::SystemError(errno, "open for direct reads", file.path().string());
  const ps::Device device = ps::Device::best();
  constexpr std::size_t room = 32 * 16 * ps::MiB;
  const ps::PinnedBuffer memory(ps::Device::cpu(), room);
  std::optional<ps::PinnedBuffer> locked;  // for the GPU, as the slots of ToDevice are
  if (device.kind() == ps::DeviceKind::cuda) locked.emplace(device, room);

  std::vector<Way> ways = bare_ways(fd, bytes, memory, "host");
  if (locked)
    std::ranges::move(bare_ways(fd, bytes, *locked, "page-locked"), std::back_inserter(ways));
  Flow best(file.path(), bytes, 4 * ps::MiB, 8, ps::FileEngine::best);
  Flow threads(file.path(), bytes, 4 * ps::MiB, 8, ps::FileEngine::threads);
  const Json params = {{"chunk", 4 * ps::MiB}, {"slots", 8}};
  ways.push_back({"ours", params, [&] { best.run(); }});
  ways.push_back({"ours, threads", params, [&] { threads.run(); }});
  std::optional<ToDevice> uploading;
  std::optional<ps::PinnedBuffer> host;
  ps::Floor link;
  if (device.kind() == ps::DeviceKind::cuda) {
    uploading.emplace(file.path(), bytes, 4 * ps::MiB, 8, device);
    host.emplace(device, 4 * ps::MiB);
    uploading->check(host->view());
    ways.push_back({"to the device", params, [&] { uploading->run(); }});
  }

  // Interleaved, forwards and backwards: a disk that is slow for a while is slow for all of them.
  for (int repeat = 0; repeat < settings.repeats; ++repeat) {
    fmt::print(stderr, "turn {} of {}: {} ways\n", repeat + 1, settings.repeats, ways.size());
    for (std::size_t i = 0; i < ways.size(); ++i) {
      Way& way = ways[repeat % 2 == 0 ? i : ways.size() - 1 - i];
      way.seconds.push_back(ps::seconds_of(way.run));
    }
    if (uploading) link.time([&] { uploading->link_pass(host->view()); });
  }
  close(fd);

  const auto gbps = [&](double seconds) { return static_cast<double>(bytes) / seconds * 1e-9; };
  ps::Floor disk;
  double best_loop = 0;
  Json bare = Json::array();
  for (const Way& way : ways) {
    const double seconds = ps::median(way.seconds);
    fmt::print("{:<14} {:<56} {:>9}, {:.3f} GB/s\n", way.name, way.params.dump(),
               ps::format_seconds(seconds), gbps(seconds));
    if (!way.name.starts_with("bare")) continue;
    for (const double pass : way.seconds) disk.add(pass);
    if (best_loop == 0 || seconds < best_loop) best_loop = seconds;
    bare.push_back({{"way", way.name}, {"params", way.params}, {"us", microseconds(seconds)}});
  }
  fmt::print("the disk alone: {} at best in {} passes\n", ps::format_seconds(disk.seconds()),
             disk.passes());
  ps::LimitsOptions limits = ps::quick_limits();
  limits.directory = settings.directory;
  bench::Results results("storage", device, ps::measure_limits(device, limits));
  results.peer("bare loop", "in this repository");
  const auto add = [&](const std::string& name, const Way& way, double floor, Json metrics) {
    const double seconds = ps::median(way.seconds);
    metrics["bytes"] = bytes;
    metrics["GBps"] = gbps(seconds);
    metrics["over_floor"] = seconds / floor;
    metrics["of_bare_loop"] = best_loop / seconds;
    const bool kept =
        results.add({{"case", name},
                     {"params", way.params},
                     {"correct", true},
                     {"max_error", 0},
                     {"tolerance", 0},
                     {"floor_us", microseconds(floor)},
                     {"ours", {{"call_us", microseconds(seconds)}}},
                     {"peer", {{"bare loop", {{"call_us", microseconds(best_loop)}}}}},
                     {"metrics", std::move(metrics)}});
    if (!kept) return;
    fmt::print("{}: {}, {:.3f} x its floor of {}; the best bare loop takes {}\n", name,
               ps::format_seconds(seconds), seconds / floor, ps::format_seconds(floor),
               ps::format_seconds(best_loop));
  };
  for (const Way& way : ways) {
    if (!way.name.starts_with("ours")) continue;
    const Flow& flow = way.name == "ours" ? best : threads;
    add(way.name == "ours" ? "read" : "read-threads", way, disk.seconds(),
        {{"engine", ps::name(flow.engine())}, {"direct", flow.direct()}, {"bare", bare}});
  }
  if (uploading) {
    add("to-device", ways.back(), std::max(disk.seconds(), link.seconds()),
        {{"disk_us", microseconds(disk.seconds())}, {"link_us", microseconds(link.seconds())}});
  }
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A file read through the library, beside the disk alone and loops written by hand");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--dir", settings.directory, "Directory of the disk to read from")
      ->check(CLI::ExistingDirectory);
  app.add_option("--mib", settings.mebibytes, "Size of the file in MiB")
      ->check(CLI::Range(std::size_t{16}, std::size_t{1} << 20));
  app.add_option("--repeats", settings.repeats, "Times each way is run; the median counts")
      ->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_storage", [&] { run(settings); });
}
