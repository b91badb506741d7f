// Measures the prebuilt kernels of operators on this machine and selects the fastest for each
// problem.
//
//   const ps::Tuning tuning = ps::tune(device, {});
//   ps::save_choices(ps::choices_path(), ps::choices_of(tuning));
//   ps::reload_choices();
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/units.h"
#include "penstock/host/device.h"
#include "penstock/ops/choices.h"

namespace ps {

struct TuneOptions {
  std::string op{};               // operator to tune; empty: all
  std::size_t bytes = 256 * MiB;  // that a call reads and writes, approximately
  int turns = 61;                 // interleaved runs of all kernels of a problem
  std::stop_token stop{};
  // Called before every problem; `share` is the fraction done, 0 to 1.
  std::function<void(std::string_view problem, double share)> progress{};
};

// Options with a fifth of the turns.
TuneOptions quick_tune();

struct KernelTime {
  std::string kernel;
  double seconds = 0;     // per call, median over the turns
  double copy_share = 0;  // rate / rate of a device copy of the same size, in interleaved runs
};

// Whether another kernel replaces the built-in choice.
struct Verdict {
  std::size_t winner = 0;  // index of the kernel; 0 is the built-in choice
  // For the fastest other kernel: its relative gain over the built-in choice in the same turn,
  // median over the turns, and three standard errors of that median. It wins if gain > noise.
  double gain = 0, noise = 0;
};

// `seconds[kernel][turn]`, the built-in choice first, with at least one turn.
Verdict compare_turns(const std::vector<std::vector<double>>& seconds);

struct TunedProblem {
  std::string op{}, problem{};      // "transform", "axpby bf16"
  std::vector<KernelTime> times{};  // the built-in choice first
  std::string chosen{};
  double gain = 0, noise = 0;        // as in Verdict
  std::vector<std::string> unfit{};  // kernels whose results differ; never chosen
};

struct Tuning {
  MachineKey key;
  std::string date;
  std::vector<TunedProblem> problems;  // those with several kernels on this device
};

// Measures and selects, but does not save. Blocks until done. Throws InvalidArgument for an unknown
// operator or options out of range, Cancelled, OutOfMemory, DeviceError.
Tuning tune(const Device& device, const TuneOptions& options);

// The selected kernels, for save_choices().
Choices choices_of(const Tuning& tuning);

// The kernel in use for a problem.
struct ProblemState {
  std::string op{}, problem{};
  std::vector<std::string> kernels{};  // that run on this device, the built-in choice first
  std::string used{};                  // empty if there are none
  std::string measured{};              // date of the measurement; empty: built-in choice
};

struct TuneState {
  std::vector<ProblemState> problems;
  std::vector<std::string> warnings;  // about the file of choices
};

// The kernels in use, of one operator or of all. Throws InvalidArgument for an unknown operator.
TuneState tune_state(const Device& device, std::string_view op = {});

// "iterate", "transform", ...
std::vector<std::string> tunable_operators();

}  // namespace ps
