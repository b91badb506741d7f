// What every rung is given: the device, the bytes, and for the ladder between host and device what
// the engines need alone and the way rows are measured. Other ladders have a problem of their own,
// by shared(). Everything costly is made at first use and then shared by all rungs of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <typeindex>
#include <vector>

#include "penstock/host/device.h"
#include "penstock/host/stream.h"
#include "penstock/measure/engines.h"
#include "penstock/measure/overlap.h"
#include "penstock/measure/yardstick.h"
#include "support/rung.h"
#include "support/trace.h"

namespace ladder {

struct Settings {
  ps::Device device = ps::Device::best();
  std::size_t bytes = 0;                 // of input; 0: what suits the device
  std::size_t chunk = 0;                 // 0: chosen from the engines' measured costs
  bool quick = false;                    // a second or so in all, for a look and for tests
  std::vector<std::int64_t> shape = {};  // of a layer: T, d, n, E, K; empty: the ladder's own
  bool all_shapes = false;               // also those that the ladder's table leaves out
  // Of the rung's rows the one whose kernels are profiled; then nothing else is measured.
  std::optional<std::size_t> profile_row = {};
  std::string trace = {};  // folder for what kernels write of themselves; empty: nothing is traced
  std::stop_token stop = {};
};

// A figure that holds for all rows of a ladder: "fma_per_second", "33.1 T multiply-adds/s".
struct Fact {
  std::string key, text;
  double value = 0;
};

// Thrown when the row to profile has been profiled: there is nothing else to do.
struct Profiled {};

class Context {
 public:
  explicit Context(Settings settings);

  const ps::Device& device() const { return settings_.device; }
  bool on_gpu() const { return device().kind() == ps::DeviceKind::cuda; }
  bool quick() const { return settings_.quick; }
  bool all_shapes() const { return settings_.all_shapes; }
  const std::vector<std::int64_t>& shape() const { return settings_.shape; }
  std::size_t bytes() const { return settings_.bytes; }
  const std::string& trace() const { return settings_.trace; }
  const std::stop_token& stop() const { return settings_.stop; }

  // A T(*this), made at first use and then the same for all rungs: what a ladder's rungs share.
  template <class T>
  T& shared() {
    std::shared_ptr<void>& one = shared_[typeid(T)];
    if (!one) one = std::make_shared<T>(*this);
    return *static_cast<T*>(one.get());
  }

  // For a row that shows work on the GPU, before it is timed: returns the row's number in its rung.
  // If it is the one to profile, runs `enqueue` on `stream` between marks for the profiler and
  // throws Profiled. Call it for the same rows in the same order in every run of the rung.
  std::size_t profile(const ps::Stream& stream, const std::function<void()>& enqueue);

  // Rows are counted from 0 again.
  void begin_rung() { profiled_rows_ = 0; }

  // Adds a figure that is shown above the table.
  void add_fact(Fact fact) { facts_.push_back(std::move(fact)); }
  const std::vector<Fact>& facts() const { return facts_; }

  // Random input in page-locked memory, page-locked output, and the device's result.
  const ps::Yardstick& data();
  const ps::Engines& engines();
  int rounds() { return engines().rounds; }
  std::size_t chunk();
  std::size_t chunks();

  // Chunk i of each buffer; the last one may be shorter.
  ps::MemoryView input(std::size_t i) { return piece(data().input(), i); }
  ps::MemoryView output(std::size_t i) { return piece(data().output(), i); }
  ps::MemoryView result(std::size_t i) { return piece(data().result(), i); }

  // Seconds of a run: the median of a few, after one to warm up; of fewer when they are long. `run`
  // completes its work before it returns. Throws ps::Cancelled when asked to stop.
  double median_seconds(const std::function<void()>& run) const;

  // The best of as many runs: for a floor.
  double best_seconds(const std::function<void()>& run) const;

  // Runs `run` on poisoned memory and checks what it computed, times it, and runs it once more with
  // the trace on. Two-way work ends in the device's result, other work in the page-locked output.
  Row measure(std::string label, ps::Ways ways, const std::function<void(Trace&)>& run);

 private:
  ps::MemoryView piece(ps::MemoryView whole, std::size_t i);
  std::vector<double> seconds_of_runs(const std::function<void()>& run) const;
  void pass_engines(ps::Ways ways);
  ps::OverlapTimes limits(ps::Ways ways);
  const ps::Timeline& sequential();

  Settings settings_;
  std::optional<ps::Yardstick> data_;
  std::optional<ps::Engines> engines_;
  std::optional<ps::Timeline> sequential_;
  std::vector<Fact> facts_;
  std::size_t profiled_rows_ = 0;
  std::map<std::type_index, std::shared_ptr<void>> shared_;
};

// Judges the row by its floor; sets hidden and efficiency, or why the row is dropped.
void set_overlap(Row& row, ps::OverlapTimes limits);

}  // namespace ladder
