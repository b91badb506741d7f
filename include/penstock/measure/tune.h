// Measures the kernels that operators may choose from, on this machine, and says which one each
// problem is to run.
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
  std::string op{};               // one operator; empty: all
  std::size_t bytes = 256 * MiB;  // about what a call reads and writes
  int turns = 61;                 // of all kernels of a problem, each in another order
  std::stop_token stop{};
  // Before every problem; the share of the work that is done.
  std::function<void(std::string_view problem, double share)> progress{};
};

// A fifth of the turns.
TuneOptions quick_tune();

struct KernelTime {
  std::string kernel;
  double seconds = 0;     // of a call, median over the turns
  double copy_share = 0;  // of the rate at which the device copies as many bytes, by turns with it
};

// Whether a challenger takes the place of the built-in choice.
struct Verdict {
  std::size_t winner = 0;  // its place in what was compared; 0 is the built-in choice
  // Of the fastest challenger, whether it won or not: how much faster it was in the same turn,
  // median over the turns, and three standard errors of that median. It wins above these.
  double gain = 0, noise = 0;
};

// From seconds of each kernel and turn, the built-in choice's first. One turn or more.
Verdict compare_turns(const std::vector<std::vector<double>>& seconds);

struct TunedProblem {
  std::string op{}, problem{};      // "transform", "axpby bf16"
  std::vector<KernelTime> times{};  // the built-in choice's first
  std::string chosen{};
  double gain = 0, noise = 0;        // as in Verdict
  std::vector<std::string> unfit{};  // kernels whose results were other bits: never chosen
};

struct Tuning {
  MachineKey key;
  std::string date;
  std::vector<TunedProblem> problems;  // those with a choice on this device
};

// Throws InvalidArgument for an operator that is not there and options out of range, Cancelled,
// OutOfMemory, DeviceError. Keeps nothing.
Tuning tune(const Device& device, const TuneOptions& options);

Choices choices_of(const Tuning& tuning);

// What runs now, and why.
struct ProblemState {
  std::string op{}, problem{};
  std::vector<std::string> kernels{};  // that this device may choose from, the built-in one first
  std::string used{};                  // empty where there are none
  std::string measured{};              // when; empty: built in
};

struct TuneState {
  std::vector<ProblemState> problems;
  std::vector<std::string> warnings;  // about the file of choices
};

// Of one operator or, without a name, of all. Throws InvalidArgument for one that is not there.
TuneState tune_state(const Device& device, std::string_view op = {});

// "iterate", "transform", ...
std::vector<std::string> tunable_operators();

}  // namespace ps
