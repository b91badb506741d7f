#include "moe/support/tile_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace ladder::moe {
namespace {

enum Kind : unsigned { load, product, store };

Kind kind_of(const ps::RoleSpan& span) {
  if (span.role == 0) return load;
  return span.role % 2 == 1 ? product : store;
}

// The spans of one block by their kind.
struct BlockSpans {
  std::vector<ps::Span> of[3];
};

ps::Span extent(const std::vector<ps::RoleSpan>& spans) {
  ps::Span all{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
  for (const ps::RoleSpan& span : spans) {
    all.begin_ns = std::min(all.begin_ns, span.begin_ns);
    all.end_ns = std::max(all.end_ns, span.end_ns);
  }
  return all;
}

std::vector<ps::Span> both(std::vector<ps::Span> one, const std::vector<ps::Span>& other) {
  one.insert(one.end(), other.begin(), other.end());
  return ps::union_of(std::move(one));
}

}  // namespace

std::vector<std::string> role_names() {
  return {"loads", "products 1", "stores 1", "products 2", "stores 2"};
}

LoopShares loop_shares(const ps::KernelRoles& roles) {
  std::map<unsigned, BlockSpans> blocks;
  for (const ps::RoleSpan& span : roles.spans) {
    blocks[span.block].of[kind_of(span)].push_back({span.begin_ns, span.end_ns});
  }
  double time = 0, busy[3] = {}, hidden = 0;
  for (const auto& [number, spans] : blocks) {
    std::vector<ps::Span> disjoint[3];
    ps::Span whole{std::numeric_limits<std::int64_t>::max(), 0};
    for (const unsigned kind : {load, product, store}) {
      disjoint[kind] = ps::union_of(spans.of[kind]);
      busy[kind] += static_cast<double>(ps::length_ns(disjoint[kind]));
      if (disjoint[kind].empty()) continue;
      whole.begin_ns = std::min(whole.begin_ns, disjoint[kind].front().begin_ns);
      whole.end_ns = std::max(whole.end_ns, disjoint[kind].back().end_ns);
    }
    time += static_cast<double>(std::max<std::int64_t>(whole.end_ns - whole.begin_ns, 0));
    // The length of an intersection: the sum of both lengths, less the length of the union.
    const std::vector<ps::Span> others = both(disjoint[load], disjoint[product]);
    hidden += static_cast<double>(ps::length_ns(others) + ps::length_ns(disjoint[store]) -
                                  ps::length_ns(both(others, disjoint[store])));
  }
  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
  return {.products = share(busy[product], time),
          .loads = share(busy[load], time),
          .stores = share(busy[store], time),
          .hidden = share(hidden, busy[store])};
}

std::string as_sentence(std::string_view product, const LoopShares& shares) {
  return fmt::format(
      "{}: the tensor cores worked {:.1f} % of the time; loads were in flight {:.1f} % of the "
      "time; stores took {:.1f} % of the time, and loads or products were in flight during "
      "{:.1f} % of that.",
      product, 100 * shares.products, 100 * shares.loads, 100 * shares.stores, 100 * shares.hidden);
}

ps::KernelRoles middle_tiles(const ps::KernelRoles& roles, unsigned block, unsigned steps,
                             unsigned tiles) {
  ps::KernelRoles part = roles;
  std::erase_if(part.spans, [&](const ps::RoleSpan& span) { return span.block != block; });
  std::uint64_t count = 0;
  for (const ps::RoleSpan& span : part.spans) {
    if (kind_of(span) == store) count = std::max(count, span.tile / steps + 1);
  }
  const std::uint64_t first = count > tiles ? (count - tiles) / 2 : 0;
  std::vector<ps::RoleSpan> inside = part.spans;
  std::erase_if(inside, [&](const ps::RoleSpan& span) {
    const std::uint64_t tile = span.tile / steps;
    return kind_of(span) == load || tile < first || tile >= first + tiles;
  });
  // Also what overlaps with these products and stores: loads and stores of other tiles.
  const ps::Span window = extent(inside);
  std::erase_if(part.spans, [&](const ps::RoleSpan& span) {
    return span.end_ns <= window.begin_ns || span.begin_ns >= window.end_ns;
  });
  if (part.spans.empty()) {
    part.kernel = {0, 0};
    return part;
  }
  const ps::Span shown = extent(part.spans);
  for (ps::RoleSpan& span : part.spans) {
    span.begin_ns -= shown.begin_ns;
    span.end_ns -= shown.begin_ns;
  }
  part.kernel = {0, shown.end_ns - shown.begin_ns};
  return part;
}

}  // namespace ladder::moe
