#include "outofcore/expert_disk_calls.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "host/backend.h"
#include "host/clock.h"
#include "ops/arguments.h"
#include "ops/scratch.h"
#include "outofcore/expert_groups.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

enum class Read : std::uint8_t { under_way, there, again };

// `again`: a read that was not started for the call has failed. Throws the error of one that was.
Read state_of(const DiskExpertStore::Block& block) {
  try {
    return block.ready() ? Read::there : Read::under_way;
  } catch (...) {
    if (!block.hit()) throw;
    return Read::again;
  }
}

}  // namespace

struct ExpertDiskCalls::Call {
  std::int64_t layer = 0;
  MoeOptions options;
  std::int64_t enqueued_ns = 0;
  std::vector<std::uint32_t> rows;  // by expert, written by the stream
  std::uint32_t routed = 0;
  bool whole = false;
};

// An expert of a call, in the cache or on its way there.
struct ExpertDiskCalls::Arriving {
  std::int32_t expert = 0;
  DiskExpertStore::Block block;
};

ExpertDiskCalls::ExpertDiskCalls(const StreamedExpertsOptions& options,
                                 std::shared_ptr<ExpertSteps> steps, CallsInFlight& calls,
                                 FirstError& error, const std::atomic<bool>& cancelled)
    : store_(*options.disk),
      shape_(store_.shape()),
      prefetch_(options.prefetch),
      most_records_(options.records),
      steps_(std::move(steps)),
      calls_(calls),
      error_(error),
      cancelled_(cancelled),
      inner_(Device::cpu()),
      map_(static_cast<std::size_t>(shape_.experts)),
      order_(shape_.layers),
      last_needed_(static_cast<std::size_t>(shape_.layers)) {}

void ExpertDiskCalls::forward(std::int64_t layer, MoeOptions options, const Stream& stream) {
  const auto slots = static_cast<std::int64_t>(store_.slots());
  ExpertStore::set_weights(shape_, store_.memory(), slots, options);
  options.slots = TensorView(map_.data(), DType::i32, {shape_.experts});
  const std::size_t bytes = moe_workspace_bytes(options);
  const std::int64_t tokens = options.x.extent(0);
  std::optional<Scratch> scratch;
  if (options.workspace.data == nullptr && tokens > 0) {
    check_pool(options.pool, bytes, stream.device());
    scratch.emplace(*options.pool, bytes, stream);
    options.workspace = {scratch->data(), bytes, stream.device().place()};
  }
  if (tokens == 0) return moe(options, stream);  // checks the arguments

  auto call = std::make_shared<Call>();
  call->layer = layer;
  call->enqueued_ns = now_ns();
  call->rows.resize(map_.size());
  call->whole = options.ids.elements() >= whole_pairs * shape_.experts;
  // Before anything is enqueued: whoever gets ExpertsClosed from here may free the arrays at once.
  const auto in_flight = calls_.begin();
  steps_->plan(options, stream);  // checks the arguments
  options.check = false;
  call->options = options;
  try {
    steps_->publish(options, {.rows = call->rows.data(), .flag = &call->routed, .value = 1},
                    stream);
    stream.call([this, call, in_flight] { compute(*call); });
    steps_->combine(options, stream);
    stream.call([in_flight] {});  // the call ends when its result is there
  } catch (...) {
    stream.impl().drain();  // what was enqueued uses the arrays, the workspace and `call`
    throw;
  }
}

// Those that are in the cache come first.
std::vector<std::int32_t> ExpertDiskCalls::needed_by(const Call& call) const {
  std::vector<std::int32_t> needed;
  for (std::int32_t e = 0; e < shape_.experts; ++e) {
    if (call.rows[static_cast<std::size_t>(e)] > 0) needed.push_back(e);
  }
  std::stable_partition(needed.begin(), needed.end(),
                        [&](std::int32_t expert) { return store_.cached(call.layer, expert); });
  return needed;
}

void ExpertDiskCalls::compute(const Call& call) {
  const std::lock_guard lock(computing_);
  ExpertCallRecord record{.layer = call.layer,
                          .tokens = call.options.x.extent(0),
                          .enqueued_ns = call.enqueued_ns,
                          .routed_ns = now_ns()};
  bool failed = false;
  try {
    const std::vector<std::int32_t> needed = needed_by(call);
    order_.called(call.layer, call.whole);
    last_needed_[static_cast<std::size_t>(call.layer)] = needed;
    std::deque<std::int32_t> left(needed.begin(), needed.end());  // that are not in `arriving`
    std::vector<Arriving> arriving, group;
    Pauses pauses;
    while (!left.empty() || !arriving.empty()) {
      if (cancelled_) throw ExpertsClosed("the experts were closed while a call was in flight");
      const bool reads_left = !left.empty();
      for (; !left.empty(); left.pop_front()) {
        auto block = store_.try_block(call.layer, left.front(), ReadPriority::urgent);
        if (!block) break;
        const bool there = block->hit() && state_of(*block) == Read::there;
        ++(there ? record.hits : block->hit() ? record.late : record.misses);
        arriving.push_back({left.front(), std::move(*block)});
      }
      if (reads_left && left.empty()) read_ahead(call);
      group.clear();
      for (auto each = arriving.begin(); each != arriving.end();) {
        const Read state = state_of(each->block);
        if (state == Read::under_way) {
          ++each;
          continue;
        }
        if (state == Read::there) {
          group.push_back(std::move(*each));
        } else {
          --record.late;
          left.push_back(each->expert);
        }
        each = arriving.erase(each);
      }
      if (group.empty()) {
        pauses.next();
        continue;
      }
      record.groups += 1;
      compute_group(call, group);
      pauses = Pauses();
    }
  } catch (...) {
    failed = true;
    error_.set(std::current_exception());
  }
  record.needed = record.hits + record.late + record.misses;
  record.answered_ns = now_ns();
  count(record, failed);
}

void ExpertDiskCalls::compute_group(const Call& call, const std::vector<Arriving>& group) {
  std::fill(map_.begin(), map_.end(), -1);
  for (const Arriving& each : group) {
    map_[static_cast<std::size_t>(each.expert)] = static_cast<std::int32_t>(each.block.slot());
  }
  try {
    steps_->experts(call.options, inner_);
  } catch (...) {
    inner_.synchronize();
    throw;
  }
  inner_.synchronize();
}

// Starts to read what the next call probably needs, into at most half of the slots.
void ExpertDiskCalls::read_ahead(const Call& call) {
  const std::int64_t next = order_.after(call.layer, call.whole);
  if (next == ExpertOrder::none || next == call.layer) return;
  std::vector<std::int32_t> likely;
  if (call.whole) {
    for (std::int32_t e = 0; e < shape_.experts; ++e) likely.push_back(e);
  } else if (prefetch_ == ExpertPrefetch::previous) {
    likely = last_needed_[static_cast<std::size_t>(next)];
  }
  likely.resize(std::min(likely.size(), store_.slots() / 2));
  prefetch(next, likely);
}

void ExpertDiskCalls::prefetch(std::int64_t layer,
                               std::span<const std::int32_t> experts) const noexcept {
  try {
    for (const std::int32_t expert : experts) {
      if (store_.cached(layer, expert)) continue;
      // The read goes on without the handle.
      if (!store_.try_block(layer, expert, ReadPriority::background)) return;
    }
  } catch (...) {
    // Whoever needs the expert tries again, and reports what fails then.
  }
}

void ExpertDiskCalls::prefetch(std::int64_t layer, const TensorView& ids, const Stream& stream) {
  const auto in_flight = calls_.begin();
  stream.call([this, layer, ids, in_flight] {
    std::vector<std::int32_t> experts;
    for (std::int64_t i = 0; i < ids.elements(); ++i) {
      const std::int64_t id = ids.dtype() == DType::i64
                                  ? static_cast<const std::int64_t*>(ids.data())[i]
                                  : static_cast<const std::int32_t*>(ids.data())[i];
      if (id >= 0 && id < shape_.experts) experts.push_back(static_cast<std::int32_t>(id));
    }
    prefetch(layer, experts);
  });
}

void ExpertDiskCalls::count(const ExpertCallRecord& record, bool failed) {
  const std::lock_guard lock(mutex_);
  ++statistics_.calls;
  statistics_.needed += record.needed;
  statistics_.hits += record.hits;
  statistics_.late += record.late;
  statistics_.misses += record.misses;
  statistics_.failed_calls += failed ? 1 : 0;
  if (most_records_ == 0) return;
  records_.push_back(record);
  if (records_.size() > most_records_) records_.pop_front();
}

ExpertStatistics ExpertDiskCalls::statistics() const {
  const SlotCacheStatistics cache = store_.statistics();
  const std::lock_guard lock(mutex_);
  ExpertStatistics counts = statistics_;
  counts.evicted = cache.evictions;
  counts.bytes = cache.missed_bytes;
  counts.prefetched = cache.misses - std::min(cache.misses, counts.misses);
  return counts;
}

std::vector<ExpertCallRecord> ExpertDiskCalls::records() const {
  const std::lock_guard lock(mutex_);
  return {records_.begin(), records_.end()};
}

}  // namespace ps::detail
