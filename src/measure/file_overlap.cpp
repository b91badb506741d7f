#include "penstock/measure/file_overlap.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <vector>

#include "measure/scratch_file.h"
#include "penstock/base/error.h"
#include "penstock/host/pipeline.h"
#include "penstock/host/storage.h"
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
  if (options.tries < 1) refuse("tries", "at least 1", std::to_string(options.tries));
  // Written so that NaN fails.
  const bool sensible = options.compute_ratio > 0 && options.compute_ratio <= 1000;
  if (!sensible) {
    refuse("compute_ratio", "above 0 and at most 1000", std::to_string(options.compute_ratio));
  }
}

// A scratch file full of a yardstick's bytes.
detail::ScratchFile written(const FileOverlapOptions& options, const Yardstick& yardstick) {
  detail::ScratchFile file(options.directory);
  for (std::size_t at = 0; at < options.bytes; at += options.chunk) {
    if (options.stop.stop_requested()) throw Cancelled();
    const std::byte* data = yardstick.input().data + at;
    try {
      file.write(data, options.chunk, at);
    } catch (const SystemError& error) {
      // Some file systems take O_DIRECT and refuse the transfer.
      if (!file.direct() || error.code().value() != EINVAL) throw;
      file.use_page_cache();
      file.write(data, options.chunk, at);
    }
  }
  file.flush();
  return file;
}

// The file, the bytes in it, and the work on them.
class FileWork {
 public:
  explicit FileWork(const FileOverlapOptions& options)
      : options_(options),
        yardstick_(Device::cpu(), options.bytes),
        stream_(Device::cpu()),
        scratch_(written(options, yardstick_)),
        file_(scratch_.path(), {.direct = scratch_.direct()}),
        reader_(read_only()) {}

  bool direct() const { return scratch_.direct(); }
  std::size_t chunks() const { return options_.bytes / options_.chunk; }

  // All bytes once, from the file alone and through the arithmetic alone.
  void read_pass() { run(reader_, nullptr); }

  // From the memory of `slots` chunks, which a cache may hold as it may hold a ring.
  void compute_pass(int rounds, std::size_t slots) const {
    for (std::size_t at = 0; at < options_.bytes; at += options_.chunk) {
      const std::size_t from = at / options_.chunk % slots * options_.chunk;
      compute(yardstick_.input().sub(from, options_.chunk), at, rounds, stream_);
    }
    stream_.synchronize();
  }

  // Interleaved: background load affects both.
  int balanced_rounds() {
    read_pass();
    int rounds = 8;
    for (int step = 0; step < 8; ++step) {
      std::vector<double> scales;
      for (int turn = 0; turn < options_.repeats; ++turn) {
        const double read = seconds_of([&] { read_pass(); });
        scales.push_back(options_.compute_ratio * read /
                         seconds_of([&] { compute_pass(rounds, chunks()); }));
      }
      const double scale = std::clamp(median(scales), 1.0 / 16, 16.0);
      const int next = std::max(1, static_cast<int>(std::lround(rounds * scale)));
      if (std::abs(next - rounds) <= rounds / 50) return next;
      rounds = next;
    }
    return rounds;
  }

  Pipeline flow(std::size_t depth, int rounds) {
    Pipeline pipeline({.device = Device::cpu(), .depth = depth});
    const RingId in = pipeline.ring("in", {.memory = Memory::pinned, .bytes = options_.chunk});
    const StageId read = add_read(pipeline, in);
    pipeline.stage("compute", {.after = {read}, .uses = {in}}, [this, in, rounds](Item& item) {
      compute(item.slot(in), offset(item), rounds, item.stream());
    });
    return pipeline;
  }

  void run(Pipeline& pipeline, Recorder* recorder) const {
    if (!direct()) scratch_.forget();  // the page cache must not answer for the disk
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

  StageId add_read(Pipeline& pipeline, RingId in) const {
    return pipeline.async_stage("read", {.uses = {in}, .engine = Engine::disk},
                                [this, in](Item& item, const Completion& done) {
                                  file_.read(offset(item), item.slot(in), done);
                                });
  }

  Pipeline read_only() const {
    Pipeline pipeline({.device = Device::cpu(), .depth = options_.depth});
    add_read(pipeline, pipeline.ring("in", {.memory = Memory::pinned, .bytes = options_.chunk}));
    return pipeline;
  }

  void compute(MemoryView in, std::size_t at, int rounds, const Stream& stream) const {
    iterate({.in = floats({in.data, in.bytes, Device::cpu().place()}),
             .out = floats(yardstick_.result().sub(at, in.bytes)),
             .rounds = rounds},
            stream);
  }

  const FileOverlapOptions& options_;
  Yardstick yardstick_;
  Stream stream_;
  detail::ScratchFile scratch_;
  File file_;
  Pipeline reader_;
};

FileOverlapRun busy_times(const Timeline& timeline, double seconds) {
  return {.read = timeline.busy_seconds(Engine::disk),
          .compute = timeline.busy_seconds(Engine::compute),
          .seconds = seconds};
}

// Each engine alone before, between and after the runs, all interleaved: on a machine that is not
// quiet, background load affects all of them.
void time_in_turn(const FileOverlapOptions& options, FileWork& work, Pipeline& sequential,
                  Pipeline& pipelined, FileOverlapResult& r) {
  const auto alone = [&](std::size_t slots) {
    r.read_alone.add(timed(options.timer, "read alone", [&] { work.read_pass(); }));
    r.compute_alone.add(
        timed(options.timer, "compute alone", [&] { work.compute_pass(r.rounds, slots); }));
  };
  std::vector<double> together, one_by_one, busy;
  alone(r.chunks);
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    together.push_back(timed(options.timer, "pipelined", [&] { work.run(pipelined, nullptr); }));
    alone(std::min(r.chunks, r.depth));
    Timeline timeline;
    one_by_one.push_back(
        timed(options.timer, "sequential", [&] { work.run(sequential, &timeline); }));
    const FileOverlapRun run = busy_times(timeline, 0);
    busy.push_back(run.read + run.compute);
    alone(r.chunks);
  }
  r.sequential.seconds = median(one_by_one);
  r.pipelined.seconds = median(together);
  r.times.sequential = median(busy);
  r.times.pipelined = r.pipelined.seconds;
  const double read = r.read_alone.seconds(), compute = r.compute_alone.seconds();
  r.times.floor = std::max(read, compute);
  r.times.ideal = r.times.floor + std::min(read, compute) / static_cast<double>(r.chunks);
  r.figures = overlap_figures(r.times);
  r.verdict = judge_by_floor(r.times.pipelined, r.times.floor);
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
  r.rounds = work.balanced_rounds();

  tell("sequential and pipelined", 0.5);
  Pipeline sequential = work.flow(1, r.rounds);  // one slot: read and compute take turns
  Pipeline pipelined = work.flow(options.depth, r.rounds);
  work.run_checked(sequential, r.rounds, &r.sequential_timeline);
  work.run_checked(pipelined, r.rounds, nullptr);
  do {
    if (++r.tries > 1) tell("sequential and pipelined, once more", 0.5);
    time_in_turn(options, work, sequential, pipelined, r);
  } while (!r.verdict.kept() && r.tries < options.tries);
  work.run_checked(pipelined, r.rounds, &r.pipelined_timeline);
  r.sequential = busy_times(r.sequential_timeline, r.sequential.seconds);
  r.pipelined = busy_times(r.pipelined_timeline, r.pipelined.seconds);
  tell("done", 1);
  return result;
}

}  // namespace ps
