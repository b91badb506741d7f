#include "penstock/measure/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "host/drain.h"
#include "measure/tune_parts.h"
#include "ops/rotation.h"
#include "penstock/base/error.h"
#include "penstock/measure/build.h"
#include "penstock/measure/interleaved.h"
#include "penstock/measure/timing.h"

namespace ps {
namespace detail {
namespace {

constexpr int warm_up_turns = 3;

// Everything that has a choice, or that is asked for by name.
struct Problem {
  const Tunable* op = nullptr;
  std::size_t number = 0;
  std::vector<unsigned> candidates;

  const std::string& name() const { return op->problems[number]; }
};

std::vector<Problem> problems_of(Tunables operators, std::string_view wanted,
                                 const Device& device) {
  std::vector<Problem> problems;
  std::string names;
  for (const Tunable* op : operators) {
    names += (names.empty() ? "" : ", ") + std::string(op->name);
    if (!wanted.empty() && op->name != wanted) continue;
    for (std::size_t number = 0; number < op->problems.size(); ++number) {
      problems.push_back({op, number, op->candidates(number, device)});
    }
  }
  if (problems.empty()) throw_invalid("op", "one of " + names, std::string(wanted));
  return problems;
}

// What the call numbered 0 leaves in its output, over bytes that no other call left there.
std::vector<std::byte> result_of(const Trial& trial, unsigned kernel, const PinnedBuffer& host,
                                 const Stream& stream) {
  const MemoryView output = trial.output(0);
  fill(output, 0xA5, stream);
  trial.enqueue(kernel, 0, stream);
  std::vector<std::byte> result;
  result.reserve(output.bytes);
  while (result.size() < output.bytes) {
    const std::size_t part = std::min(host.bytes(), output.bytes - result.size());
    copy(host.view().sub(0, part), output.sub(result.size(), part), stream);
    stream.synchronize();
    result.insert(result.end(), host.view().data, host.view().data + part);
  }
  return result;
}

// Takes out of `kernels` those whose results are other bits than the first one's.
std::vector<unsigned> take_unfit(std::vector<unsigned>& kernels, const Trial& trial,
                                 const PinnedBuffer& host, const Stream& stream) {
  const std::vector<std::byte> wanted = result_of(trial, kernels.front(), host, stream);
  const auto unfit = std::stable_partition(
      kernels.begin() + 1, kernels.end(),
      [&](unsigned kernel) { return result_of(trial, kernel, host, stream) == wanted; });
  const std::vector<unsigned> taken(unfit, kernels.end());
  kernels.erase(unfit, kernels.end());
  return taken;
}

TunedProblem measure(const Problem& problem, const Device& device, const TuneOptions& options) {
  const Tunable& op = *problem.op;
  const Trial trial = op.trial(problem.number, device, options.bytes);
  const std::size_t half = trial.bytes / 2;
  const Rotation copied(device, 2 * half);
  const PinnedBuffer host(device, 16 * MiB);
  const Stream stream(device);
  const Drain drain(device);

  TunedProblem tuned{.op = std::string(op.name), .problem = problem.name()};
  std::vector<unsigned> kernels = problem.candidates;
  for (const unsigned kernel : take_unfit(kernels, trial, host, stream)) {
    tuned.unfit.emplace_back(op.kernels[kernel]);
  }

  std::size_t call = 0;
  std::vector<EnqueuePiece> work;
  for (const unsigned kernel : kernels) {
    work.emplace_back([&, kernel](std::size_t) { trial.enqueue(kernel, call++, stream); });
  }
  work.emplace_back([&](std::size_t number) {
    const MemoryView set = copied(number);
    copy(set.sub(0, half), set.sub(half, half), stream);
  });
  // A call that is not timed holds the stream while the first of a turn is enqueued behind it.
  std::vector<std::vector<double>> seconds =
      interleaved_seconds(stream, work,
                          {.turns = options.turns,
                           .warm_up = warm_up_turns,
                           .hold = [&] { trial.enqueue(kernels.front(), call++, stream); },
                           .stop = options.stop});

  const double copy_seconds = median(std::move(seconds.back()));
  seconds.pop_back();
  const Verdict verdict = compare_turns(seconds);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const double each = median(std::move(seconds[i]));
    tuned.times.push_back({std::string(op.kernels[kernels[i]]), each, copy_seconds / each});
  }
  tuned.chosen = tuned.times[verdict.winner].kernel;
  tuned.gain = verdict.gain;
  tuned.noise = verdict.noise;
  return tuned;
}

}  // namespace

Tuning tune(const Device& device, const TuneOptions& options, Tunables operators) {
  if (options.turns < 5 || options.turns > 100'000) {
    throw_invalid("options.turns", "5 to 100000", std::to_string(options.turns));
  }
  if (options.bytes < 64 * KiB) {
    throw_invalid("options.bytes", "64 KiB or more", format_bytes(options.bytes));
  }
  std::vector<Problem> problems = problems_of(operators, options.op, device);
  std::erase_if(problems, [](const Problem& each) { return each.candidates.size() < 2; });
  Tuning tuning{.key = machine_key(device), .date = now_utc(), .problems = {}};
  for (const Problem& problem : problems) {
    if (options.stop.stop_requested()) throw Cancelled();
    if (options.progress) {
      options.progress(problem.name(), static_cast<double>(tuning.problems.size()) /
                                           static_cast<double>(problems.size()));
    }
    tuning.problems.push_back(measure(problem, device, options));
  }
  return tuning;
}

TuneState tune_state(const Device& device, std::string_view op, Tunables operators) {
  TuneState state;
  std::optional<Choices> choices;
  try {
    choices = measured_choices(device);
  } catch (const std::exception& error) {
    state.warnings.push_back(
        fmt::format("using the built-in choices, because {} cannot be used: {}",
                    choices_path().string(), error.what()));
  }
  for (const Problem& problem : problems_of(operators, op, device)) {
    ProblemState each{.op = std::string(problem.op->name), .problem = problem.name()};
    for (const unsigned kernel : problem.candidates) {
      each.kernels.emplace_back(problem.op->kernels[kernel]);
    }
    if (!each.kernels.empty()) {
      const Use use = use_of(*problem.op, problem.number, device, choices);
      each.used = problem.op->kernels[use.kernel];
      each.measured = use.measured;
    }
    const Choice* choice = choices ? choices->find(each.op, each.problem) : nullptr;
    if (choice != nullptr && each.measured.empty()) {
      state.warnings.push_back(
          fmt::format("{} names the kernel {} for {} {}, which does not exist here; it is ignored",
                      choices_path().string(), choice->kernel, each.op, each.problem));
    }
    state.problems.push_back(std::move(each));
  }
  return state;
}

}  // namespace detail

TuneOptions quick_tune() { return {.turns = TuneOptions{}.turns / 5}; }

Verdict compare_turns(const std::vector<std::vector<double>>& seconds) {
  // The standard error of a median is sqrt(pi/2) that of a mean; of normal errors, the median
  // distance from the median is their deviation over 1.4826.
  constexpr double errors_per_distance = 1.2533 * 1.4826, errors_that_count = 3;
  Verdict verdict;
  const auto turns = static_cast<double>(seconds.front().size());
  for (std::size_t i = 1; i < seconds.size(); ++i) {
    std::vector<double> gains, distances;
    for (std::size_t turn = 0; turn < seconds[i].size(); ++turn) {
      gains.push_back(seconds.front()[turn] / seconds[i][turn] - 1);
    }
    const double gain = median(gains);
    for (const double each : gains) distances.push_back(std::abs(each - gain));
    const double noise =
        errors_that_count * errors_per_distance * median(std::move(distances)) / std::sqrt(turns);
    if (i == 1 || gain > verdict.gain) {
      verdict = {.winner = gain > noise ? i : 0, .gain = gain, .noise = noise};
    }
  }
  return verdict;
}

Tuning tune(const Device& device, const TuneOptions& options) {
  return detail::tune(device, options, detail::all_tunables());
}

TuneState tune_state(const Device& device, std::string_view op) {
  return detail::tune_state(device, op, detail::all_tunables());
}

std::vector<std::string> tunable_operators() {
  std::vector<std::string> names;
  for (const detail::Tunable* op : detail::all_tunables()) names.emplace_back(op->name);
  return names;
}

Choices choices_of(const Tuning& tuning) {
  Choices choices{.key = tuning.key, .operators = {}};
  for (const TunedProblem& each : tuning.problems) {
    choices.operators[each.op][each.problem] = {.kernel = each.chosen, .date = tuning.date};
  }
  return choices;
}

}  // namespace ps
