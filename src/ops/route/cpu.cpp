// The CPU's route(): all cores, each with tokens of its own.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ops/route/score.h"
#include "ops/route/work.h"
#include "ops/transform/half.h"
#include "penstock/host/parallel.h"

namespace ps::routing {
namespace {

using detail::RouteWork;

constexpr std::size_t grain = 4 * 1024;  // logits; fewer are not worth waking a thread for

// The usable logits and the keys of one token.
struct Experts {
  std::array<float, detail::route_most_experts> logit;
  std::array<std::uint32_t, detail::route_most_experts> key;
};

template <class Logit>
void load(const RouteWork& work, std::int64_t token, Experts& experts) {
  const Logit* row = static_cast<const Logit*>(work.logits) + token * work.logit_row;
  for (int e = 0; e < work.experts; ++e) {
    experts.logit[e] = usable(detail::widen(row[e]));
    experts.key[e] =
        compared_key(work.scoring, experts.logit[e], work.bias != nullptr ? work.bias[e] : 0.0F);
  }
}

// Leaves only experts of the best groups.
void keep_best_groups(const RouteWork& work, Experts& experts) {
  const int size = work.experts / work.groups;
  std::array<std::uint32_t, detail::route_most_groups> groups{};
  for (int e = 0; e < work.experts; e += size) {
    std::uint32_t best = no_key, second = no_key;
    for (int i = e; i < e + size; ++i) {
      second = std::max(second, std::min(best, experts.key[i]));
      best = std::max(best, experts.key[i]);
    }
    groups[e / size] = group_key(best, second);
  }
  std::array<bool, detail::route_most_groups> kept{};
  for (int i = 0; i < work.top_groups; ++i) {
    auto* const best = std::max_element(groups.begin(), groups.end());  // the first of equals
    if (*best == no_key) break;
    kept[best - groups.begin()] = true;
    *best = no_key;
  }
  for (int e = 0; e < work.experts; ++e) {
    if (!kept[e / size]) experts.key[e] = no_key;
  }
}

// e^(logit - largest) of all experts, in the order that score.h defines.
float sum_of_exponentials(const RouteWork& work, const Experts& experts, float largest) {
  std::array<float, lanes> sums{};
  for (int e = 0; e < work.experts; ++e) {
    sums[e % lanes] += exponential(experts.logit[e] - largest);
  }
  for (unsigned half = lanes / 2; half > 0; half /= 2) {
    for (unsigned lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

struct Choices {
  int count = 0;  // found; at most K
  std::array<int, detail::route_most_choices> expert{};
  std::array<float, detail::route_most_choices> weight{};

  float sum() const {
    float total = 0;
    for (int k = 0; k < count; ++k) total += weight[k];
    return total;
  }
  void divide_by(float divisor) {
    for (int k = 0; k < count; ++k) weight[k] = quotient(weight[k], divisor);
  }
};

void choose(const RouteWork& work, Experts& experts, Choices& choices) {
  for (int k = 0; k < work.choices; ++k) {
    auto* const begin = experts.key.data();
    auto* const best = std::max_element(begin, begin + work.experts);  // the first of equals
    if (*best == no_key) return;
    choices.expert[choices.count++] = static_cast<int>(best - begin);
    *best = no_key;
  }
}

void weigh(const RouteWork& work, const Experts& experts, Choices& choices) {
  // With softmax the first choice has the largest logit.
  const float largest = experts.logit[choices.expert[0]];
  for (int k = 0; k < choices.count; ++k) {
    choices.weight[k] = raw_weight(work.scoring, experts.logit[choices.expert[k]], largest);
  }
  if (work.scoring == RouteScoring::softmax_topk) {
    choices.divide_by(sum_of_exponentials(work, experts, largest));
  } else if (work.scoring == RouteScoring::topk_softmax) {
    choices.divide_by(choices.sum());
  }
  if (work.renormalise) {
    const float total = choices.sum();
    if (total > 0) choices.divide_by(total);
  }
  for (int k = 0; k < choices.count; ++k) choices.weight[k] *= work.scale;
}

void store(const RouteWork& work, std::int64_t token, const Choices& choices) {
  for (int k = 0; k < work.choices; ++k) {
    const std::int64_t to = token * work.choices + k;
    const int expert = k < choices.count ? choices.expert[k] : work.experts;
    if (work.wide_ids) {
      static_cast<std::int64_t*>(work.ids)[to] = expert;
    } else {
      static_cast<std::int32_t*>(work.ids)[to] = expert;
    }
    work.weights[to] = k < choices.count ? choices.weight[k] : 0.0F;
  }
}

template <class Logit>
void run_range(const RouteWork& work, std::size_t begin, std::size_t end) {
  Experts experts;
  for (auto token = static_cast<std::int64_t>(begin); std::cmp_less(token, end); ++token) {
    load<Logit>(work, token, experts);
    if (work.groups > 1) keep_best_groups(work, experts);
    Choices choices;
    choose(work, experts, choices);
    if (choices.count > 0) weigh(work, experts, choices);
    store(work, token, choices);
  }
}

void run(const RouteWork& work) {
  const std::size_t tokens = grain / static_cast<std::size_t>(work.experts);
  auto* const range = work.logit_type == DType::f16    ? run_range<detail::F16>
                      : work.logit_type == DType::bf16 ? run_range<detail::BF16>
                                                       : run_range<float>;
  parallel_ranges(static_cast<std::size_t>(work.tokens), tokens,
                  [&](std::size_t begin, std::size_t end) { range(work, begin, end); });
}

}  // namespace
}  // namespace ps::routing

namespace ps::detail {

void route_cpu(const RouteWork& work, const Stream& stream) {
  stream.call([work] { routing::run(work); });
}

}  // namespace ps::detail
