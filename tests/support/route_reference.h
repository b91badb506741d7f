// What route() should give for one token, in double and by sorting.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "penstock/ops/route.h"

namespace ps::test {

struct RouteReference {
  std::vector<int> ids;
  std::vector<double> weights;
  std::vector<double> units;  // how many units of 2^-24 each weight may be off
  // Some decision hangs on a difference that f32 may round away.
  bool close_call = false;
};

class RouteReferenceToken {
 public:
  // Without a bias, `bias` is empty. Of `options`, only numbers are read.
  RouteReferenceToken(const RouteOptions& options, int choices, std::vector<double> logits,
                      const std::vector<double>& bias)
      : options_(options),
        choices_(static_cast<std::size_t>(choices)),
        count_(logits.size()),
        sigmoid_(options.scoring == RouteScoring::sigmoid),
        logit_(std::move(logits)),
        bias_(bias.empty() ? std::vector<double>(count_) : bias),
        score_(count_) {
    for (std::size_t e = 0; e < count_; ++e) {
      if (logit_[e] == INFINITY) logit_[e] = std::numeric_limits<float>::max();
      score_[e] = sigmoid_ ? share(logit_[e]) + bias_[e] : logit_[e];
    }
  }

  RouteReference result() {
    RouteReference found;
    const std::vector<std::size_t> order = sorted_candidates(found.close_call);
    for (std::size_t k = 0; k < order.size() && k < choices_; ++k) {
      found.ids.push_back(static_cast<int>(order[k]));
      // As far as scores may be close to this one.
      for (std::size_t i = k + 1; i < order.size() && !clear(score_[order[k]], score_[order[i]]);
           ++i) {
        found.close_call |= close({order[k]}, {order[i]});
      }
    }
    weigh(found);
    found.ids.resize(choices_, static_cast<int>(count_));
    found.weights.resize(choices_, 0);
    found.units.resize(choices_, 0);
    return found;
  }

 private:
  using Indices = std::vector<std::size_t>;

  static double share(double x) { return 1 / (1 + std::exp(-x)); }

  bool candidate(std::size_t e) const {
    return !std::isnan(logit_[e]) && logit_[e] != -INFINITY && !std::isnan(score_[e]) &&
           score_[e] != -INFINITY;
  }

  double sum_of_scores(const Indices& of) const {
    double sum = 0;
    for (const std::size_t e : of) sum += score_[e];
    return sum;
  }

  // Whether f32 orders these scores, or sums of them, as double does.
  static bool clear(double a, double b) {
    return std::isinf(a) || std::isinf(b) || std::abs(a - b) > 1e-6 * std::max(1.0, std::abs(a));
  }

  // Whether f32 may order sums of scores otherwise. Sums of the same numbers are equal there, too.
  bool close(const Indices& a, const Indices& b) const {
    const bool same = std::ranges::equal(a, b, [&](std::size_t x, std::size_t y) {
      return logit_[x] == logit_[y] && bias_[x] == bias_[y];
    });
    return sigmoid_ && !same && !clear(sum_of_scores(a), sum_of_scores(b));
  }

  // The best first; experts of groups that take no part are missing.
  Indices sorted_candidates(bool& close_call) const {
    const std::size_t size = count_ / static_cast<std::size_t>(options_.groups);
    const auto better = [&](std::size_t a, std::size_t b) { return score_[a] > score_[b]; };
    std::vector<Indices> groups;  // their candidates
    for (std::size_t first = 0; first < count_; first += size) {
      Indices all;
      for (std::size_t e = first; e < first + size; ++e) {
        if (candidate(e)) all.push_back(e);
      }
      if (all.empty()) continue;
      std::ranges::stable_sort(all, better);
      groups.push_back(all);
    }
    const auto best_two = [](const Indices& group) {
      return Indices(group.begin(), group.begin() + std::min<std::ptrdiff_t>(2, std::ssize(group)));
    };
    const auto top = static_cast<std::size_t>(options_.top_groups);
    if (groups.size() > top) {
      std::ranges::stable_sort(groups, [&](const Indices& a, const Indices& b) {
        return sum_of_scores(best_two(a)) > sum_of_scores(best_two(b));
      });
      for (std::size_t in = 0; in < top; ++in) {
        for (std::size_t out = top; out < groups.size(); ++out) {
          close_call |= close(best_two(groups[in]), best_two(groups[out]));
        }
      }
      groups.resize(top);
    }
    Indices order;
    for (const Indices& group : groups) order.insert(order.end(), group.begin(), group.end());
    std::ranges::sort(order);
    std::ranges::stable_sort(order, better);
    return order;
  }

  void weigh(RouteReference& found) const {
    if (found.ids.empty()) return;
    const double largest = logit_[static_cast<std::size_t>(found.ids[0])];
    double total = 0;
    if (options_.scoring == RouteScoring::softmax_topk) {
      for (std::size_t e = 0; e < count_; ++e) {
        if (candidate(e)) total += std::exp(logit_[e] - largest);
      }
    }
    for (const int id : found.ids) {
      const double logit = logit_[static_cast<std::size_t>(id)];
      found.weights.push_back(sigmoid_ ? share(logit) : std::exp(logit - largest));
      // The difference of two logits is rounded before it becomes an exponent.
      found.units.push_back(sigmoid_ ? 8 : 40 + (largest - logit));
      if (options_.scoring == RouteScoring::topk_softmax) total += found.weights.back();
    }
    double sum = 0;
    for (double& weight : found.weights) {
      if (!sigmoid_) weight /= total;
      sum += weight;
    }
    for (std::size_t k = 0; k < found.ids.size(); ++k) {
      if (options_.renormalise && sum > 0) found.weights[k] /= sum;
      if (options_.renormalise) found.units[k] += 20;
      found.weights[k] *= options_.scale;
    }
  }

  const RouteOptions& options_;
  std::size_t choices_, count_;
  bool sigmoid_;
  std::vector<double> logit_, bias_, score_;
};

}  // namespace ps::test
