#include "tune_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "table.h"

namespace ps::cli {
namespace {

using Json = nlohmann::ordered_json;

// Calls use(op, first, last) for every run of problems of one operator.
template <class Problem, class Use>
void each_operator(const std::vector<Problem>& problems, const Use& use) {
  for (auto first = problems.begin(); first != problems.end();) {
    const auto last = std::find_if(first, problems.end(),
                                   [&](const Problem& each) { return each.op != first->op; });
    use(first->op, first, last);
    first = last;
  }
}

std::string percent(double share) { return fmt::format("{:+.1f}%", 100 * share); }

std::string time_text(const TunedProblem& problem, const std::string& kernel) {
  for (const KernelTime& each : problem.times) {
    if (each.kernel == kernel) {
      return fmt::format("{:.1f} us {:.3f}", 1e6 * each.seconds, each.copy_share);
    }
  }
  const bool unfit =
      std::find(problem.unfit.begin(), problem.unfit.end(), kernel) != problem.unfit.end();
  return unfit ? "differs" : "";
}

// The kernels of all problems, one table column for each.
template <class Iterator>
std::vector<std::string> kernels_of(Iterator first, Iterator last) {
  std::vector<std::string> kernels;
  for (; first != last; ++first) {
    for (const KernelTime& each : first->times) kernels.push_back(each.kernel);
    kernels.insert(kernels.end(), first->unfit.begin(), first->unfit.end());
  }
  std::ranges::sort(kernels);
  kernels.erase(std::unique(kernels.begin(), kernels.end()), kernels.end());
  return kernels;
}

}  // namespace

std::string tuning_text(const Tuning& tuning) {
  std::string text;
  each_operator(tuning.problems, [&](const std::string& op, auto first, auto last) {
    const std::vector<std::string> kernels = kernels_of(first, last);
    std::vector<Align> columns = {Align::left};
    std::vector<std::string> head = {"problem"};
    for (const std::string& kernel : kernels) {
      columns.push_back(Align::right);
      head.push_back(kernel);
    }
    columns.insert(columns.end(), {Align::left, Align::left, Align::right});
    head.insert(head.end(), {"chosen", "built in", "gain"});
    Table table(columns);
    table.row(head);
    for (; first != last; ++first) {
      std::vector<std::string> row = {first->problem};
      for (const std::string& kernel : kernels) row.push_back(time_text(*first, kernel));
      const bool compared = first->times.size() > 1;
      row.insert(
          row.end(),
          {first->chosen, first->times.front().kernel,
           compared ? fmt::format("{} ± {:.1f}%", percent(first->gain), 100 * first->noise) : ""});
      table.row(std::move(row));
    }
    text +=
        fmt::format("{} on {}: time per call, and its rate as a share of the device copy rate\n{}",
                    op, tuning.key.device, table.text());
  });
  return text;
}

Json tuning_json(const Tuning& tuning) {
  Json problems = Json::array();
  for (const TunedProblem& each : tuning.problems) {
    Json times = Json::object();
    for (const KernelTime& time : each.times) {
      times[time.kernel] = {{"seconds", time.seconds}, {"copy_share", time.copy_share}};
    }
    problems.push_back({{"operator", each.op},
                        {"problem", each.problem},
                        {"kernels", std::move(times)},
                        {"built_in", each.times.front().kernel},
                        {"chosen", each.chosen},
                        {"gain", each.gain},
                        {"noise", each.noise},
                        {"other_bits", each.unfit}});
  }
  return problems;
}

std::string state_text(const TuneState& state) {
  std::string text;
  each_operator(state.problems, [&](const std::string& op, auto first, auto last) {
    Table table({Align::left, Align::left, Align::left, Align::left});
    table.row({"problem", "used", "why", "kernels"});
    bool choice = false;
    for (; first != last; ++first) {
      if (first->kernels.size() < 2) continue;
      choice = true;
      std::string kernels;
      for (const std::string& kernel : first->kernels) {
        kernels += (kernels.empty() ? "" : ", ") + kernel;
      }
      table.row({first->problem, first->used,
                 first->measured.empty() ? "built in" : "measured " + first->measured, kernels});
    }
    if (choice) text += fmt::format("{}\n{}", op, table.text());
  });
  return text;
}

Json state_json(const TuneState& state) {
  Json problems = Json::array();
  for (const ProblemState& each : state.problems) {
    problems.push_back({{"operator", each.op},
                        {"problem", each.problem},
                        {"kernels", each.kernels},
                        {"used", each.used.empty() ? Json(nullptr) : Json(each.used)},
                        {"measured", each.measured.empty() ? Json(nullptr) : Json(each.measured)}});
  }
  return problems;
}

std::string nothing_to_choose(const TuneState& state, const Device& device) {
  if (device.kind() == DeviceKind::cpu) {
    const std::string why = Device::why_no_gpu();
    return fmt::format(
        "cpu: operators have one implementation on the CPU, so there is nothing to choose{}\n",
        why.empty() ? "" : " (no GPU: " + why + ")");
  }
  std::string text;
  each_operator(state.problems, [&](const std::string& op, auto first, auto last) {
    if (std::any_of(first, last, [](const auto& each) { return each.kernels.size() > 1; })) return;
    text += fmt::format("{}: {} on {}: nothing to choose\n", op,
                        first->kernels.empty() ? "no kernel" : "one kernel", device.name());
  });
  return text;
}

}  // namespace ps::cli
