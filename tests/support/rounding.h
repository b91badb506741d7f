// Calls of round_routes() with random numbers, and a plain check of their results.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "penstock/ops/round_routes.h"
#include "penstock/ops/route.h"
#include "support/elements.h"
#include "support/strided.h"

namespace ps::test {

struct RoundingShape {
  std::int64_t tokens = 200, experts = 8, choices = 2, extra = 2, tile = 16;
  RoundScoring scoring = RoundScoring::softmax;
  DType id_type = DType::i32;
  double levels = 0;  // logits are rounded to 1 / levels, so that many weights are equal; 0: not
};

// The arrays of a call. The ids and weights are route()'s, computed on the CPU.
class RoundingCall {
 public:
  RoundingCall(std::uint32_t seed, const RoundingShape& shape)
      : shape_(shape),
        logits_(DType::f32, {shape.tokens, shape.experts}),
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
        logits_.set_bits({t, e}, encoded(static_cast<float>(logit), DType::f32));
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

  std::int64_t crowded() const { return crowded_; }

  // What is wrong with the result; empty if nothing is. Judges each expert by itself, from sets of
  // tokens.
  std::string wrong() {
    const auto E = shape_.experts, K = shape_.choices;
    std::vector<std::map<std::int64_t, float>> before(at(E)), after(at(E));
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
    crowded_ = 0;
    for (std::int64_t e = 0; e < E; ++e) {
      const std::string found = wrong_expert(e, before[at(e)], after[at(e)]);
      if (!found.empty()) return fmt::format("expert {}: {}", e, found);
    }
    return {};
  }

 private:
  using Tokens = std::map<std::int64_t, float>;

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  static std::int64_t id(const Strided& ids, std::int64_t t, std::int64_t k) {
    const auto bits = ids.bits({t, k});
    return ids.type() == DType::i64 ? static_cast<std::int64_t>(bits)
                                    : static_cast<std::int32_t>(bits);
  }
  static float number(const Strided& array, std::int64_t t, std::int64_t k) {
    return static_cast<float>(decoded(static_cast<std::uint32_t>(array.bits({t, k})), DType::f32));
  }
  static double softened(double logit) { return 1 / (1 + std::exp(-logit)); }

  // The weight that the expert would have for a token, in f64.
  double would_be(std::int64_t t, std::int64_t e) const {
    const auto first = id(ids_, t, 0);
    if (first >= shape_.experts) return 0;
    const double own = number(logits_, t, e), best = number(logits_, t, first);
    const double ratio = shape_.scoring == RoundScoring::sigmoid ? softened(own) / softened(best)
                                                                 : std::exp(own - best);
    return number(weights_, t, 0) * ratio;
  }

  std::string wrong_expert(std::int64_t e, const Tokens& before, const Tokens& after) {
    const auto tile = shape_.tile, count = static_cast<std::int64_t>(before.size());
    const auto now = static_cast<std::int64_t>(after.size()), over = count % tile;
    if (now % tile != 0) return fmt::format("{} tokens became {}", count, now);
    if (std::abs(now - count) >= tile) return fmt::format("{} tokens became {}", count, now);
    if (static_cast<std::int32_t>(changes_.bits({e})) != now - count) return "wrong change";
    for (const auto& [t, weight] : after) {
      const auto known = before.find(t);
      if (known != before.end() && known->second != weight) return "a weight changed";
      if (known == before.end() && std::abs(weight - would_be(t, e)) > 1e-5 * weight) {
        return fmt::format("token {} has weight {}, expected {}", t, weight, would_be(t, e));
      }
    }
    if (now < count) {
      if (2 * over >= tile) ++crowded_;  // or too few tokens could be taken
      return wrong_dropped(before, after);
    }
    if (now > count) {
      if (2 * over < tile) return "rounded up below half a tile";
      return wrong_taken(e, before, after);
    }
    return {};
  }

  static std::string wrong_dropped(const Tokens& before, const Tokens& after) {
    for (const auto& [t, weight] : before) {
      if (after.contains(t)) continue;
      for (const auto& [kept, other] : after) {
        if (other < weight || (other == weight && kept > t)) {
          return fmt::format("dropped token {} and kept {}", t, kept);
        }
      }
    }
    return after.size() < before.size() ? "" : "dropped and took";
  }

  std::string wrong_taken(std::int64_t e, const Tokens& before, const Tokens& after) const {
    for (std::int64_t t = 0; t < shape_.tokens; ++t) {
      if (after.contains(t)) continue;
      if (before.contains(t)) return fmt::format("dropped token {} and took others", t);
      const double left = would_be(t, e);
      for (const auto& [taken, weight] : after) {
        if (before.contains(taken)) continue;
        if (left > weight * (1 + 1e-5)) return fmt::format("took token {}, not {}", taken, t);
      }
    }
    return {};
  }

  RoundingShape shape_;
  Strided logits_, ids_, weights_, rounded_ids_, rounded_weights_, changes_;
  std::int64_t crowded_ = 0;
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
  return shape;
}

}  // namespace ps::test
