#include "penstock/trace/kernel_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "trace/clock_alignment.h"
#include "trace/kernel_buffer.h"

namespace ps {
namespace {

std::map<unsigned, detail::ClockSamples> samples_of(const detail::KernelBuffer& buffer) {
  std::map<unsigned, detail::ClockSamples> clocks;
  for (const detail::BlockRecords& block : buffer.blocks) {
    detail::ClockSamples& clock = clocks[block.head.sm];
    clock.pairs.insert(clock.pairs.end(), block.pairs.begin(), block.pairs.end());
    const auto include = [&](std::uint64_t from, std::uint64_t to) {
      clock.first = std::min(clock.first, from);
      clock.last = std::max(clock.last, to);
    };
    include(block.head.begin, std::max(block.head.begin, block.head.end));
    for (const auto& records : block.records) {
      for (const KernelTraceRecord& r : records) include(r.start, r.start + r.length);
    }
  }
  return clocks;
}

void widen(Span& span, const Span& by) {
  span.begin_ns = std::min(span.begin_ns, by.begin_ns);
  span.end_ns = std::max(span.end_ns, by.end_ns);
}

std::int64_t length(const Span& span) { return span.end_ns - span.begin_ns; }

std::string shown_ns(double ns) { return format_seconds(ns * 1e-9); }

}  // namespace

KernelTrace::KernelTrace(std::span<const std::byte> buffer, std::vector<std::string> roles)
    : names_(std::move(roles)) {
  const detail::KernelBuffer read = detail::read_kernel_buffer(buffer);
  if (names_.size() != read.head.roles) {
    detail::throw_invalid("roles",
                          fmt::format("{} names, one per role of the trace", read.head.roles),
                          fmt::format("{} names", names_.size()));
  }
  const detail::ClockAlignment alignment = detail::align_clocks(samples_of(read));
  grid_ = read.head.grid;
  error_ = alignment.error;
  pairs_ = alignment.pairs;
  tick_ns_ = alignment.tick_ns;

  Span whole{INT64_MAX, INT64_MIN};
  for (const detail::BlockRecords& block : read.blocks) {
    const auto line = alignment.lines.find(block.head.sm);
    Block traced{.block = block.head.block, .sm = block.head.sm, .span = {}, .lost = block.lost};
    traced.aligned = line != alignment.lines.end();
    if (traced.aligned) {
      const std::int64_t begin_ns = line->second.at(block.head.begin);
      traced.span = {begin_ns, begin_ns};
      if (block.head.state == KernelTraceState::ended) {
        traced.span.end_ns = line->second.at(block.head.end);
      }
    }
    for (unsigned role = 0; role < block.records.size(); ++role) {
      traced.records += block.records[role].size();
      if (!traced.aligned) continue;
      for (const KernelTraceRecord& r : block.records[role]) {
        spans_.push_back({.block = traced.block,
                          .sm = traced.sm,
                          .role = role,
                          .tile = r.tile,
                          .begin_ns = line->second.at(r.start),
                          .end_ns = line->second.at(r.start + r.length)});
        widen(traced.span, {spans_.back().begin_ns, spans_.back().end_ns});
      }
    }
    if (traced.aligned) widen(whole, traced.span);
    blocks_.push_back(traced);
  }

  // Count times from the first begin.
  for (Block& block : blocks_) {
    if (!block.aligned) continue;
    block.span.begin_ns -= whole.begin_ns;
    block.span.end_ns -= whole.begin_ns;
  }
  for (RoleSpan& span : spans_) {
    span.begin_ns -= whole.begin_ns;
    span.end_ns -= whole.begin_ns;
  }
  std::ranges::stable_sort(spans_, {}, &RoleSpan::begin_ns);
  span_ = {0, length(whole)};
}

const KernelTrace::Block* KernelTrace::aligned_block(unsigned number) const {
  const auto found = std::ranges::lower_bound(blocks_, number, {}, &Block::block);
  return found != blocks_.end() && found->block == number && found->aligned ? &*found : nullptr;
}

std::vector<unsigned> KernelTrace::chosen(const KernelTraceOptions& options) const {
  for (const unsigned number : options.blocks) {
    if (aligned_block(number) == nullptr) {
      detail::throw_invalid("options.blocks", "traced blocks with aligned clocks",
                            fmt::format("block {}", number));
    }
  }
  if (!options.blocks.empty()) return options.blocks;

  std::vector<Block> blocks;
  for (const Block& block : blocks_) {
    if (block.aligned && (options.sm ? block.sm == *options.sm : block.records > 0)) {
      blocks.push_back(block);
    }
  }
  if (options.sm && blocks.empty()) {
    detail::throw_invalid("options.sm", "a multiprocessor with an aligned trace",
                          fmt::format("{}", *options.sm));
  }
  if (blocks.empty()) return {};
  const unsigned sm = std::ranges::min(blocks, {}, &Block::sm).sm;
  std::erase_if(blocks, [&](const Block& block) { return block.sm != sm; });
  std::ranges::stable_sort(blocks, {}, [](const Block& block) { return block.span.begin_ns; });
  std::vector<unsigned> numbers;
  for (const Block& block : blocks) {
    if (numbers.size() < options.most_blocks) numbers.push_back(block.block);
  }
  return numbers;
}

KernelRoles KernelTrace::roles(const KernelTraceOptions& options) const {
  std::vector<unsigned> numbers = chosen(options);
  std::ranges::sort(numbers);
  KernelRoles roles{.names = names_, .spans = {}, .kernel = span_, .error = error_};
  for (const Block& block : blocks_) {
    if (std::ranges::binary_search(numbers, block.block)) roles.lost += block.lost;
  }
  std::int64_t shift_ns = 0;
  if (options.inside) {
    constexpr std::int64_t furthest = std::int64_t{1} << 60;
    if (options.inside->begin_ns < -furthest || options.inside->end_ns > furthest ||
        options.inside->end_ns < options.inside->begin_ns) {
      detail::throw_invalid(
          "options.inside", "an interval whose end is not before its begin, within 2^60 ns",
          fmt::format("{} to {} ns", options.inside->begin_ns, options.inside->end_ns));
    }
    const std::int64_t room = length(*options.inside) - length(span_);
    const auto slack = static_cast<double>(room);
    if (slack < -2 * (error_.max_ns + static_cast<double>(tick_ns_))) {
      detail::throw_invalid(
          "options.inside",
          fmt::format("an interval at least as long as the trace, {} ns", length(span_)),
          fmt::format("{} ns", length(*options.inside)));
    }
    const bool whole_grid = blocks_.size() == grid_;
    shift_ns = options.inside->begin_ns + (whole_grid || room < 0 ? room / 2 : 0);
    roles.place_ns = std::abs(slack) / (whole_grid ? 2 : 1);
    roles.kernel = {shift_ns, shift_ns + length(span_)};
  }
  for (RoleSpan span : spans_) {
    if (!std::ranges::binary_search(numbers, span.block)) continue;
    span.begin_ns += shift_ns;
    span.end_ns += shift_ns;
    roles.spans.push_back(span);
  }
  return roles;
}

std::string describe(const KernelRoles& roles) {
  std::string text = fmt::format("clocks aligned to within {} (median {})",
                                 shown_ns(roles.error.max_ns), shown_ns(roles.error.median_ns));
  if (roles.place_ns > 0) text += fmt::format(", placed to within {}", shown_ns(roles.place_ns));
  if (roles.lost > 0) text += fmt::format(", {} records did not fit", roles.lost);
  return text;
}

void record_roles(const KernelRoles& roles, Recorder& recorder) {
  for (const RoleSpan& span : roles.spans) {
    const std::string stage = fmt::format("block {}, {}", span.block, roles.names[span.role]);
    recorder.record({.engine = Engine::compute,
                     .stage = stage,
                     .item = span.tile,
                     .begin_ns = span.begin_ns,
                     .end_ns = span.end_ns});
  }
}

}  // namespace ps
