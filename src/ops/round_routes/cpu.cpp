#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "ops/round_routes/work.h"
#include "ops/transform/half.h"
#include "penstock/host/parallel.h"

namespace ps::rounding {
namespace {

using detail::RoundingWork;

constexpr std::size_t grain = 16 * 1024;  // keys; fewer are not worth waking a thread for

template <class Logit>
void write_keys(const RoundingWork& work, std::size_t begin, std::size_t end) {
  const std::int64_t experts = work.experts;
  for (auto t = static_cast<std::int64_t>(begin); std::cmp_less(t, end); ++t) {
    const Logit* row = static_cast<const Logit*>(work.logits) + t * work.logit_row;
    const auto logit = [&](std::int64_t e) { return routing::usable(detail::widen(row[e])); };
    const std::int64_t first = work.id(t * work.choices);
    const bool any = first >= 0 && first < experts;
    const float first_weight = work.weights[t * work.choices];
    for (std::int64_t e = 0; e < experts; ++e) {
      work.keys()[e * work.tokens + t] =
          any ? weight_key(taken_weight(work.sigmoid, logit(e), logit(first), first_weight)) : 0;
    }
    for (std::int64_t k = t * work.choices; k < (t + 1) * work.choices; ++k) {
      const std::int64_t e = work.id(k);
      if (e < 0 || e >= experts) continue;
      work.keys()[e * work.tokens + t] = chosen_bit | weight_key(work.weights[k]);
    }
  }
}

void make_cut(const RoundingWork& work, std::size_t expert) {
  const std::uint32_t* keys = work.keys() + static_cast<std::int64_t>(expert) * work.tokens;
  Cut& cut = work.cuts()[expert];
  std::int64_t count = 0, available = 0;
  for (std::int64_t t = 0; t < work.tokens; ++t) {
    if ((keys[t] & chosen_bit) != 0) {
      ++count;
    } else if (keys[t] != 0) {
      ++available;
    }
  }
  cut.change = rounded_change(count, available, work.tile, cut.refused != 0);
  if (cut.change == 0) return;
  // In the order in which tokens are taken or dropped.
  const bool up = cut.change > 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> tokens;
  for (std::int64_t t = 0; t < work.tokens; ++t) {
    if (((keys[t] & chosen_bit) == 0) != up || keys[t] == 0) continue;
    const auto index = static_cast<std::uint32_t>(t);
    tokens.emplace_back(up ? ~keys[t] : keys[t], up ? index : ~index);
  }
  const auto last = tokens.begin() + (up ? cut.change : -cut.change) - 1;
  std::nth_element(tokens.begin(), last, tokens.end());
  cut.key = up ? ~last->first : last->first;
  cut.token = up ? last->second : ~last->second;
}

// Marks the experts that would take a token whose free places go to others.
void find_refused(const RoundingWork& work) {
  const auto extra = static_cast<std::size_t>(work.places - work.choices);
  std::vector<std::pair<std::uint64_t, int>> takers;  // with their claims
  for (std::int64_t t = 0; t < work.tokens; ++t) {
    takers.clear();
    for (int e = 0; e < work.experts; ++e) {
      const std::uint32_t key = work.keys()[e * work.tokens + t];
      if (!work.cuts()[e].takes(key, static_cast<std::uint32_t>(t))) continue;
      takers.emplace_back(claim(key, e), e);
    }
    if (takers.size() <= extra) continue;
    std::ranges::sort(takers, std::greater());
    for (std::size_t i = extra; i < takers.size(); ++i) work.cuts()[takers[i].second].refused = 1;
  }
}

void write_token(const RoundingWork& work, std::int64_t t) {
  const auto index = static_cast<std::uint32_t>(t);
  const auto key = [&](std::int64_t e) { return work.keys()[e * work.tokens + t]; };
  std::int64_t place = t * work.places;
  const std::int64_t end = place + work.places;
  for (int k = 0; k < work.choices; ++k) {
    const std::int64_t from = t * work.choices + k, e = work.id(from);
    const bool there = e >= 0 && e < work.experts;
    const bool stays = there && !work.cuts()[e].drops(key(e), index);
    work.write(place++, stays ? e : work.experts, stays ? work.weights[from] : 0.0F);
  }
  for (int e = 0; e < work.experts; ++e) {
    if (work.cuts()[e].takes(key(e), index)) work.write(place++, e, weight_of(key(e)));
  }
  while (place < end) work.write(place++, work.experts, 0.0F);
}

void run(const RoundingWork& work) {
  const auto tokens = static_cast<std::size_t>(work.tokens);
  const auto experts = static_cast<std::size_t>(work.experts);
  const std::size_t token_grain = std::max<std::size_t>(1, grain / experts);
  auto* const keys = work.logit_type == DType::f16    ? write_keys<detail::F16>
                     : work.logit_type == DType::bf16 ? write_keys<detail::BF16>
                                                      : write_keys<float>;
  parallel_ranges(tokens, token_grain,
                  [&](std::size_t begin, std::size_t end) { keys(work, begin, end); });
  const auto make_cuts = [&](bool refused_only) {
    parallel_ranges(experts, std::max<std::size_t>(1, grain / std::max<std::size_t>(1, tokens)),
                    [&](std::size_t begin, std::size_t end) {
                      for (std::size_t e = begin; e < end; ++e) {
                        if (!refused_only || work.cuts()[e].refused != 0) make_cut(work, e);
                      }
                    });
  };
  std::fill_n(work.cuts(), experts, Cut{});
  make_cuts(false);
  find_refused(work);
  make_cuts(true);
  parallel_ranges(tokens, token_grain, [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = begin; t < end; ++t) write_token(work, static_cast<std::int64_t>(t));
  });
  for (std::size_t e = 0; work.changes != nullptr && e < experts; ++e) {
    work.changes[e] = work.cuts()[e].change;
  }
}

}  // namespace
}  // namespace ps::rounding

namespace ps::detail {

void round_routes_cpu(const RoundingWork& work, const Stream& stream) {
  stream.call([work] { rounding::run(work); });
}

}  // namespace ps::detail
