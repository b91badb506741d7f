// Random calls of route(), with everything that logits may contain, and what they should give. A
// seed is all that is needed to repeat one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "penstock/ops/route.h"
#include "support/elements.h"
#include "support/route_reference.h"
#include "support/strided.h"

namespace ps::test {

// What a test may fix; 0 and -1 leave it to the seed.
struct RouteShape {
  std::int64_t tokens = -1;
  int experts = 0, choices = 0;
  int scoring = -1;
  int groups = 0, top_groups = 0;
};

class RandomRoute {
 public:
  explicit RandomRoute(std::uint32_t seed, RouteShape shape = {}) : random_(seed) {
    experts_ = shape.experts > 0
                   ? shape.experts
                   : pick({1, 2, 3, 31, 32, 33, 64, 100, 128, 256, 257, 512, 1 + below(512)});
    const int most = std::min(16, experts_);
    choices_ = shape.choices > 0 ? shape.choices : pick({1, most, 1 + below(most)});
    tokens_ = shape.tokens >= 0 ? shape.tokens : below(8) == 0 ? 0 : 1 + below(20);
    options_.scoring = static_cast<RouteScoring>(shape.scoring >= 0 ? shape.scoring : below(3));
    options_.renormalise = below(2) == 0;
    options_.scale = pick({1.0F, 2.5F, -0.3F});
    if (options_.scoring == RouteScoring::sigmoid) choose_groups(shape);
    fill();
  }

  // The call with arrays elsewhere: `place` makes a copy of an array there, and gives its view.
  template <class Place>
  RouteOptions placed(const Place& place) {
    RouteOptions there = options_;
    there.logits = place(logits_);
    if (has_bias_) there.bias = place(bias_);
    there.ids = place(ids_);
    there.weights = place(weights_);
    return there;
  }
  RouteOptions options() {
    return placed([](Strided& array) { return array.view(); });
  }
  const Strided& ids() const { return ids_; }
  const Strided& weights() const { return weights_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t close_calls() const { return close_calls_; }  // tokens that wrong() did not judge

  std::string describe() const {
    return std::string(name(logits_.type())) + "[" + std::to_string(tokens_) + ", " +
           std::to_string(experts_) + "], K " + std::to_string(choices_) + ", scoring " +
           std::to_string(static_cast<int>(options_.scoring)) + ", groups " +
           std::to_string(options_.groups) + ", top_groups " + std::to_string(options_.top_groups) +
           (has_bias_ ? ", bias" : "");
  }

  // "" when all of it is right.
  std::string wrong() {
    for (std::int64_t token = 0; token < tokens_; ++token) {
      const std::string found = wrong_token(token);
      if (!found.empty()) return describe() + ", token " + std::to_string(token) + ": " + found;
    }
    if (!ids_.surroundings_untouched()) return "bytes around ids were written";
    if (!weights_.surroundings_untouched()) return "bytes around weights were written";
    return "";
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint32_t>(n)); }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[below(static_cast<int>(from.size()))];
  }

  void choose_groups(const RouteShape& shape) {
    options_.groups = shape.groups > 0 ? shape.groups : 1 + below(std::min(32, experts_));
    while (experts_ % options_.groups != 0) --options_.groups;
    const int size = experts_ / options_.groups, least = (choices_ + size - 1) / size;
    options_.top_groups =
        shape.top_groups > 0 ? shape.top_groups : least + below(options_.groups - least + 1);
  }

  // Numbers of a few values, which are often equal, or any.
  double number(bool coarse, double size) {
    const double x = std::normal_distribution<double>(0, size)(random_);
    return coarse ? std::round(2 * x / size) * size / 2 : x;
  }

  void fill() {
    const DType type = pick({DType::f32, DType::bf16, DType::f16});
    const Layout layout{.plain = below(2) == 0, .expand = true, .row = true};
    logits_ = Strided(type, {tokens_, experts_}, layout, random_);
    const bool coarse = below(3) == 0;
    const double size = pick({0.5, 2.0, 10.0});
    const int odd_one_in = pick({3, 20, 1000});  // experts that cannot be chosen, and infinities
    for (std::int64_t i = 0; i < logits_.size(); ++i) {
      const double odd = pick<double>({NAN, -INFINITY, NAN, -INFINITY, INFINITY, -0.0});
      set(logits_, i, below(odd_one_in) == 0 ? odd : number(coarse, size));
    }
    if (tokens_ > 0 && below(4) == 0) {  // none to choose from
      for (int e = 0; e < experts_; ++e) logits_.set_bits({tokens_ - 1, e}, encoded(NAN, type));
    }
    has_bias_ = options_.scoring == RouteScoring::sigmoid && below(3) != 0;
    bias_ = Strided(DType::f32, {experts_});
    const double shift = pick({0.0, -3.0});  // all compared scores below 0
    for (int e = 0; e < experts_; ++e) {
      const double odd = pick<double>({NAN, -INFINITY, INFINITY});
      set(bias_, e, below(100) == 0 ? odd : number(coarse, 0.3) + shift);
    }
    ids_ = Strided(pick({DType::i32, DType::i64}), {tokens_, choices_});
    weights_ = Strided(DType::f32, {tokens_, choices_});
  }

  static void set(Strided& array, std::int64_t i, double x) {
    array.set_bits(array.index(i), encoded(rounded(x, array.type()), array.type()));
  }
  static double get(const Strided& array, const std::vector<std::int64_t>& at) {
    return decoded(static_cast<std::uint32_t>(array.bits(at)), array.type());
  }

  std::string wrong_token(std::int64_t token) {
    std::vector<double> logits, bias;
    for (int e = 0; e < experts_; ++e) {
      logits.push_back(get(logits_, {token, e}));
      if (has_bias_) bias.push_back(get(bias_, {e}));
    }
    const RouteReference right =
        RouteReferenceToken(options_, choices_, std::move(logits), bias).result();
    if (right.close_call) {
      ++close_calls_;
      return "";
    }
    for (int k = 0; k < choices_; ++k) {
      const auto i = static_cast<std::size_t>(k);
      const std::string at = "choice " + std::to_string(k);
      const std::uint64_t id = ids_.bits({token, k});
      if (id != static_cast<std::uint64_t>(right.ids[i])) {
        return at + " is " + std::to_string(id) + ", not " + std::to_string(right.ids[i]);
      }
      const double weight = get(weights_, {token, k}), wanted = right.weights[i];
      const bool none = right.ids[i] == experts_;
      // Powers below e^-87 are 0.
      const double tolerance =
          none ? 0 : std::ldexp(std::abs(wanted) * right.units[i], -24) + 1e-37;
      if (!(std::abs(weight - wanted) <= tolerance) || (none && std::signbit(weight))) {
        return "the weight of " + at + " is " + std::to_string(weight) + ", not " +
               std::to_string(wanted);
      }
    }
    return "";
  }

  std::mt19937 random_;
  int experts_ = 0, choices_ = 0;
  std::int64_t tokens_ = 0;
  bool has_bias_ = false;
  RouteOptions options_;
  Strided logits_, bias_, ids_, weights_;
  std::int64_t close_calls_ = 0;
};

}  // namespace ps::test
