// Calls of round_routes() with random numbers, and a plain check of their results.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/round_routes/cut.h"
#include "penstock/ops/round_routes.h"
#include "penstock/ops/route.h"
#include "support/elements.h"
#include "support/strided.h"

namespace ps::test {

struct RoundingShape {
  std::int64_t tokens = 200, experts = 8, choices = 2, extra = 2, tile = 16;
  RoundScoring scoring = RoundScoring::softmax;
  DType id_type = DType::i32, logit_type = DType::f32;
  std::int64_t row_padding = 0;  // elements between two rows of the logits
  double levels = 0;  // logits are rounded to 1 / levels, so that many weights are equal; 0: not
};

// The arrays of a call. The ids and weights are route()'s, computed on the CPU.
class RoundingCall {
 public:
  RoundingCall(std::uint32_t seed, const RoundingShape& shape)
      : shape_(shape),
        logits_(shape.logit_type, {shape.tokens, shape.experts},
                {shape.experts + shape.row_padding, 1}),
        ids_(shape.id_type, {shape.tokens, shape.choices}),
        weights_(DType::f32, {shape.tokens, shape.choices}),
        rounded_ids_(shape.id_type, {shape.tokens, places()}),
        rounded_weights_(DType::f32, {shape.tokens, places()}),
        changes_(DType::i32, {shape.experts}) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      for (std::int64_t e = 0; e < shape.experts; ++e) {
        double logit = normal(random);
        if (shape.levels > 0) logit = std::round(logit * shape.levels) / shape.levels;
        if (random() % 50 == 0) logit = -std::numeric_limits<double>::infinity();
        logits_.set_bits({t, e}, encoded(rounded(logit, shape.logit_type), shape.logit_type));
      }
    }
    const Stream stream(Device::cpu());
    route({.logits = logits_.view(),
           .ids = ids_.view(),
           .weights = weights_.view(),
           .scoring = shape.scoring == RoundScoring::sigmoid ? RouteScoring::sigmoid
                                                             : RouteScoring::softmax_topk},
          stream);
    stream.synchronize();
  }

  std::int64_t places() const { return shape_.choices + shape_.extra; }

  template <class Place>
  RoundRoutesOptions options(const Place& place) {
    return {.logits = place(logits_),
            .ids = place(ids_),
            .weights = place(weights_),
            .rounded_ids = place(rounded_ids_),
            .rounded_weights = place(rounded_weights_),
            .changes = place(changes_),
            .tile = shape_.tile,
            .scoring = shape_.scoring};
  }
  RoundRoutesOptions options() {
    return options([](Strided& array) { return array.view(); });
  }

  const Strided& rounded_ids() const { return rounded_ids_; }
  const Strided& rounded_weights() const { return rounded_weights_; }
  const Strided& changes() const { return changes_; }

  // Experts that round down because others got a token that they would take; after wrong().
  std::int64_t refused() const { return refused_; }

  // What is wrong with the result; empty if nothing is. The tokens of every expert must be exactly
  // those of a plain computation, which sorts all tokens of each expert.
  std::string wrong() {
    const auto E = shape_.experts, K = shape_.choices;
    std::vector<Tokens> before(at(E)), after(at(E));
    for (std::int64_t t = 0; t < shape_.tokens; ++t) {
      for (std::int64_t k = 0; k < K; ++k) {
        const auto e = id(ids_, t, k);
        if (e < E) before[at(e)][t] = number(weights_, t, k);
        const auto now = id(rounded_ids_, t, k);
        if (now != e && now != E) return fmt::format("token {}: choice {} became {}", t, e, now);
      }
      std::int64_t last = -1;
      for (std::int64_t p = 0; p < places(); ++p) {
        const auto e = id(rounded_ids_, t, p);
        const float weight = number(rounded_weights_, t, p);
        if (e < 0 || e > E) return fmt::format("token {}: id {}", t, e);
        if (e == E && weight != 0) return fmt::format("token {}: weight {} of nobody", t, weight);
        if (p >= K && e <= last && e != E) return fmt::format("token {}: places not in order", t);
        if (p >= K) last = e;
        if (e < E && !after[at(e)].emplace(t, weight).second) return "an expert twice";
      }
    }
    std::vector<Tokens> wanted(at(E));
    for (std::int64_t e = 0; e < E; ++e) wanted[at(e)] = wanted_by(e, before[at(e)]);
    const std::set<std::int64_t> without_a_place = refused(wanted);
    refused_ = static_cast<std::int64_t>(without_a_place.size());
    for (std::int64_t e = 0; e < E; ++e) {
      const bool up = !wanted[at(e)].empty() && !without_a_place.contains(e);
      Tokens right = up ? before[at(e)] : rest_of(before[at(e)]);
      if (up) right.insert(wanted[at(e)].begin(), wanted[at(e)].end());
      const std::string found = wrong_expert(e, before[at(e)], after[at(e)], right);
      if (!found.empty()) return fmt::format("expert {}: {}", e, found);
    }
    return {};
  }

 private:
  using Tokens = std::map<std::int64_t, float>;  // with their weights

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  static std::int64_t id(const Strided& ids, std::int64_t t, std::int64_t k) {
    const auto bits = ids.bits({t, k});
    return ids.type() == DType::i64 ? static_cast<std::int64_t>(bits)
                                    : static_cast<std::int32_t>(bits);
  }
  static float number(const Strided& array, std::int64_t t, std::int64_t k) {
    return static_cast<float>(
        decoded(static_cast<std::uint32_t>(array.bits({t, k})), array.type()));
  }
  static double softened(double logit) { return 1 / (1 + std::exp(-logit)); }

  // The weight that the expert would have for a token: in f64, and as the library computes it,
  // which decides between weights that are nearly equal.
  double would_be(std::int64_t t, std::int64_t e) const {
    const auto first = id(ids_, t, 0);
    if (first >= shape_.experts) return 0;
    const double own = number(logits_, t, e), best = number(logits_, t, first);
    const double ratio = shape_.scoring == RoundScoring::sigmoid ? softened(own) / softened(best)
                                                                 : std::exp(own - best);
    return number(weights_, t, 0) * ratio;
  }
  float is_said_to_be(std::int64_t t, std::int64_t e) const {
    const auto first = id(ids_, t, 0);
    if (first >= shape_.experts) return 0;
    return rounding::taken_weight(
        shape_.scoring == RoundScoring::sigmoid, routing::usable(number(logits_, t, e)),
        routing::usable(number(logits_, t, first)), number(weights_, t, 0));
  }

  // The tokens that an expert would take: none if it is nearer to the lower multiple, or if there
  // are too few.
  Tokens wanted_by(std::int64_t e, const Tokens& before) const {
    const auto over = static_cast<std::int64_t>(before.size()) % shape_.tile;
    const auto missing = shape_.tile - over;
    if (over == 0 || missing > over) return {};
    std::vector<std::pair<float, std::int64_t>> others;
    for (std::int64_t t = 0; t < shape_.tokens; ++t) {
      const float weight = before.contains(t) ? 0 : is_said_to_be(t, e);
      if (weight > 0) others.emplace_back(-weight, t);
    }
    if (std::cmp_less(others.size(), missing)) return {};
    std::ranges::sort(others);
    Tokens wanted;
    for (const auto& [weight, t] : std::span(others).first(at(missing))) wanted[t] = -weight;
    return wanted;
  }

  // The experts for which a token that they would take has no place left.
  std::set<std::int64_t> refused(const std::vector<Tokens>& wanted) const {
    std::map<std::int64_t, std::vector<std::pair<float, std::int64_t>>> takers;
    for (std::size_t e = 0; e < wanted.size(); ++e) {
      for (const auto& [t, weight] : wanted[e]) {
        takers[t].emplace_back(-weight, static_cast<std::int64_t>(e));
      }
    }
    std::set<std::int64_t> refused;
    for (auto& [t, experts] : takers) {
      std::ranges::sort(experts);
      for (std::size_t i = at(shape_.extra); i < experts.size(); ++i) {
        refused.insert(experts[i].second);
      }
    }
    return refused;
  }

  // What is left of an expert's tokens when it rounds down.
  Tokens rest_of(const Tokens& before) const {
    std::vector<std::pair<float, std::int64_t>> all;
    for (const auto& [t, weight] : before) all.emplace_back(weight, -t);
    std::ranges::sort(all);
    Tokens rest = before;
    for (std::size_t i = 0; i < before.size() % at(shape_.tile); ++i) rest.erase(-all[i].second);
    return rest;
  }

  std::string wrong_expert(std::int64_t e, const Tokens& before, const Tokens& after,
                           const Tokens& right) const {
    const auto count = static_cast<std::int64_t>(before.size());
    const auto now = static_cast<std::int64_t>(after.size());
    const auto expected = static_cast<std::int64_t>(right.size());
    if (now != expected) {
      return fmt::format("{} tokens became {}, expected {}", count, now, expected);
    }
    if (now % shape_.tile != 0 || std::abs(now - count) >= shape_.tile) return "no multiple";
    if (static_cast<std::int32_t>(changes_.bits({e})) != now - count) return "wrong change";
    for (const auto& [t, weight] : right) {
      const auto found = after.find(t);
      if (found == after.end()) return fmt::format("token {} is missing", t);
      if (found->second != weight) {
        return fmt::format("token {} has weight {}, expected {}", t, found->second, weight);
      }
      if (!before.contains(t) && std::abs(weight - would_be(t, e)) > 1e-5 * weight) {
        return fmt::format("token {} has weight {}, expected {}", t, weight, would_be(t, e));
      }
    }
    return {};
  }

  RoundingShape shape_;
  Strided logits_, ids_, weights_, rounded_ids_, rounded_weights_, changes_;
  std::int64_t refused_ = 0;
};

// Shapes of all kinds, by seed.
inline RoundingShape rounding_shape(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto any = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  RoundingShape shape{.tokens = any(0, 700), .experts = any(1, 70)};
  shape.choices = any(1, std::min<std::int64_t>(8, shape.experts));
  shape.extra = any(0, 8);
  shape.tile = any(1, 100);
  shape.scoring = any(0, 1) == 0 ? RoundScoring::softmax : RoundScoring::sigmoid;
  shape.id_type = any(0, 1) == 0 ? DType::i32 : DType::i64;
  shape.levels = any(0, 1) == 0 ? 0 : 2;
  const DType logit_types[] = {DType::f32, DType::bf16, DType::f16};
  shape.logit_type = logit_types[any(0, 2)];
  shape.row_padding = any(0, 1) == 0 ? 0 : any(1, 9);
  return shape;
}

}  // namespace ps::test
