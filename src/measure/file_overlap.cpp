#include "penstock/measure/file_overlap.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <vector>

#include "measure/scratch_file.h"
#include "penstock/base/error.h"
#include "penstock/host/pipeline.h"
#include "penstock/measure/cancelled.h"
#include "penstock/measure/timing.h"
#include "penstock/measure/yardstick.h"
#include "penstock/ops/iterate.h"

namespace ps {
namespace {

constexpr std::size_t page = 4096;

void check(const FileOverlapOptions& options) {
  const auto refuse = [](const char* argument, const char* expected, const std::string& given) {
    detail::throw_invalid(argument, expected, given);
  };
  if (options.chunk == 0 || options.chunk % page != 0) {
    refuse("chunk", "a multiple of 4 KiB above 0", std::to_string(options.chunk));
  }
  if (options.bytes == 0 || options.bytes % options.chunk != 0) {
    refuse("bytes", "a multiple of the chunk above 0", std::to_string(options.bytes));
  }
  if (options.depth == 0) refuse("depth", "at least 1", "0");
  if (options.repeats < 1) refuse("repeats", "at least 1", std::to_string(options.repeats));
  // Written so that NaN fails.
  const bool sensible = options.compute_ratio > 0 && options.compute_ratio <= 1000;
  if (!sensible) {
    refuse("compute_ratio", "above 0 and at most 1000", std::to_string(options.compute_ratio));
  }
}

// The file, the bytes in it, and the work on them.
class FileWork {
 public:
  FileWork(const FileOverlapOptions& options)
      : options_(options),
        yardstick_(Device::cpu(), options.bytes),
        slot_(Device::cpu(), options.chunk),
        stream_(Device::cpu()),
        file_(options.directory) {
    for (std::size_t at = 0; at < options.bytes; at += options.chunk) {
      if (options.stop.stop_requested()) throw Cancelled();
      write(at);
    }
    file_.flush();
  }

  bool direct() const { return file_.direct(); }
  std::size_t chunks() const { return options_.bytes / options_.chunk; }

  // The page cache must not answer for the disk.
  void forget() const {
    if (!file_.direct()) file_.forget();
  }

  // All bytes once, from the file alone and through the arithmetic alone.
  void read_pass() const {
    forget();
    for (std::size_t at = 0; at < options_.bytes; at += options_.chunk) {
      file_.read(slot_.view().data, options_.chunk, at);
    }
  }

  void compute_pass(int rounds) const {
    for (std::size_t at = 0; at < options_.bytes; at += options_.chunk) {
      compute(yardstick_.input().sub(at, options_.chunk), at, rounds, stream_);
    }
    stream_.synchronize();
  }

  int balanced_rounds(double wanted) const {
    int rounds = 8;
    for (int step = 0; step < 8; ++step) {
      const double seconds = median_seconds(options_.repeats, [&] { compute_pass(rounds); });
      const double scale = std::clamp(wanted / seconds, 1.0 / 16, 16.0);
      const int next = std::max(1, static_cast<int>(std::lround(rounds * scale)));
      if (std::abs(next - rounds) <= rounds / 50) return next;
      rounds = next;
    }
    return rounds;
  }

  Pipeline flow(std::size_t depth, int rounds) {
    Pipeline pipeline({.device = Device::cpu(), .depth = depth});
    const RingId in = pipeline.ring("in", {.memory = Memory::pinned, .bytes = options_.chunk});
    const StageId read = pipeline.host_stage(
        "read", {.uses = {in}, .engine = Engine::disk},
        [this, in](Item& item) { file_.read(item.slot(in).data, options_.chunk, offset(item)); });
    pipeline.stage("compute", {.after = {read}, .uses = {in}}, [this, in, rounds](Item& item) {
      compute(item.slot(in), offset(item), rounds, item.stream());
    });
    return pipeline;
  }

  void run(Pipeline& pipeline, Recorder* recorder) const {
    forget();
    const RunReport report =
        pipeline.run({.items = chunks(), .stop = options_.stop, .recorder = recorder});
    if (report.cancelled) throw Cancelled();
  }

  void run_checked(Pipeline& pipeline, int rounds, Recorder* recorder) const {
    yardstick_.poison();
    run(pipeline, recorder);
    yardstick_.check_result(rounds);
  }

 private:
  std::size_t offset(const Item& item) const {
    return static_cast<std::size_t>(item.index()) * options_.chunk;
  }

  void compute(MemoryView in, std::size_t at, int rounds, const Stream& stream) const {
    iterate({.in = floats({in.data, in.bytes, Device::cpu().place()}),
             .out = floats(yardstick_.result().sub(at, in.bytes)),
             .rounds = rounds},
            stream);
  }

  void write(std::size_t at) {
    const std::byte* data = yardstick_.input().data + at;
    try {
      file_.write(data, options_.chunk, at);
    } catch (const SystemError& error) {
      // Some file systems take O_DIRECT and refuse the transfer.
      if (!file_.direct() || error.code().value() != EINVAL) throw;
      file_.use_page_cache();
      file_.write(data, options_.chunk, at);
    }
  }

  const FileOverlapOptions& options_;
  Yardstick yardstick_;
  PinnedBuffer slot_;
  Stream stream_;
  detail::ScratchFile file_;
};

FileOverlapRun busy_times(const Timeline& timeline, double seconds) {
  return {.read = timeline.busy_seconds(Engine::disk),
          .compute = timeline.busy_seconds(Engine::compute),
          .seconds = seconds};
}

}  // namespace

std::unique_ptr<FileOverlapResult> measure_file_overlap(const FileOverlapOptions& options) {
  check(options);
  const auto tell = [&](std::string_view what, double share) {
    if (options.stop.stop_requested()) throw Cancelled();
    if (options.progress) options.progress(what, share);
  };
  tell("writing the file", 0);
  FileWork work(options);
  auto result = std::make_unique<FileOverlapResult>();
  FileOverlapResult& r = *result;
  r.bytes = options.bytes;
  r.chunk = options.chunk;
  r.chunks = work.chunks();
  r.depth = options.depth;
  r.direct = work.direct();

  tell("engines alone", 0.2);
  const double read = median_seconds(options.repeats, [&] { work.read_pass(); });
  r.rounds = work.balanced_rounds(read * options.compute_ratio);

  tell("sequential", 0.5);
  Pipeline sequential = work.flow(1, r.rounds);  // one slot: read and compute take turns
  work.run_checked(sequential, r.rounds, nullptr);
  const double taking_turns =
      median_seconds(options.repeats, [&] { work.run(sequential, nullptr); });
  work.run_checked(sequential, r.rounds, &r.sequential_timeline);
  r.sequential = busy_times(r.sequential_timeline, taking_turns);

  tell("pipelined", 0.75);
  Pipeline pipelined = work.flow(options.depth, r.rounds);
  work.run_checked(pipelined, r.rounds, nullptr);
  // By turns: what slows a machine that is not quiet for a while slows all three.
  std::vector<double> reading, computing, together;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    reading.push_back(seconds_of([&] { work.read_pass(); }));
    computing.push_back(seconds_of([&] { work.compute_pass(r.rounds); }));
    together.push_back(seconds_of([&] { work.run(pipelined, nullptr); }));
  }
  work.run_checked(pipelined, r.rounds, &r.pipelined_timeline);
  r.pipelined = busy_times(r.pipelined_timeline, median(together));
  r.read_alone = median(reading);
  r.compute_alone = median(computing);

  r.times.sequential = r.sequential.read + r.sequential.compute;
  r.times.pipelined = r.pipelined.seconds;
  r.times.floor = std::max(r.read_alone, r.compute_alone);
  r.times.ideal =
      r.times.floor + std::min(r.read_alone, r.compute_alone) / static_cast<double>(r.chunks);
  r.figures = overlap_figures(r.times);
  tell("done", 1);
  return result;
}

}  // namespace ps
