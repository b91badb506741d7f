#include "outofcore/expert_answers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "host/backend.h"
#include "host/clock.h"
#include "host/flag.h"
#include "outofcore/expert_source.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

// Copies that may be in flight besides those that a call waits for. The thread can react to new
// calls only behind them; two keep the link busy.
constexpr std::uint32_t most_whole_copies = 8, most_hinted_copies = 2;
// Layers whose experts are copied ahead while passes go through all experts.
constexpr int layers_ahead = 2;

bool is_over(const ExpertSlots::Reader& reader) { return reader.call->number != reader.number; }

}  // namespace

void release_groups(ExpertCall& call, std::size_t first) {
  for (std::size_t group = first; group < call.groups; ++group) {
    std::fill_n(call.map(group), call.slots.extent(0), -1);
    set_flag(call.flags + group, call.number);
  }
}

void release(ExpertCall& call) {
  release_groups(call, 0);
  if (call.host != nullptr) ExpertHost::release(*call.host);
}

// The call that is being answered.
struct ExpertAnswers::Plan {
  ExpertCall& call;
  ExpertCallRecord& record;
  std::vector<std::int32_t> needed{};  // experts
  std::vector<std::int32_t> todo{};    // of those, the ones without a group; copied in this order
  std::vector<std::size_t> forming{};  // slots of the next group
  std::vector<std::size_t> held{};     // slots that must not be evicted until the call is answered
  std::size_t group = 0;               // the next one
  bool routed = false;                 // `needed` is exact
  bool host_started = false;           // the host has experts of the call
};

ExpertAnswers::ExpertAnswers(const StreamedExpertsOptions& options,
                             std::unique_ptr<CachePolicy> policy, MemoryView slots,
                             std::uint32_t* copied, const std::atomic<bool>& cancelled,
                             std::int64_t hint_wait_ns)
    : store_(options.store),
      compressed_(options.compressed),
      reads_(options.disk != nullptr ? std::optional<ExpertReads>(*options.disk) : std::nullopt),
      shape_(shape_of(options)),
      block_bytes_(ExpertStore::block_bytes(shape_)),
      prefetch_(options.prefetch),
      memory_(slots),
      working_slots_(slots.bytes / block_bytes_ - options.pinned.size()),
      copied_(copied),
      cancelled_(cancelled),
      copies_(options.device, {.priority = Priority::high}),
      fills_(copies_),
      slots_(slots.bytes / block_bytes_, static_cast<std::size_t>(shape_.layers * shape_.experts),
             std::move(policy)),
      hint_wait_ns_(hint_wait_ns),
      order_(shape_.layers),
      last_needed_(static_cast<std::size_t>(shape_.layers)) {
  for (const auto& [layer, expert] : options.pinned) {
    wishes_.push_back({.key = layer * shape_.experts + expert, .pinned = true});
  }
}

void ExpertAnswers::stage(MemoryView memory, std::shared_ptr<ExpertSteps> steps) {
  staging_.emplace(copies_.device(), memory, std::move(steps));
  fills_ = Stream(copies_.device(), {.priority = Priority::high});
}

MemoryView ExpertAnswers::slot_memory(std::size_t slot) const {
  return memory_.sub(slot * block_bytes_, block_bytes_);
}

std::uint32_t ExpertAnswers::in_flight() const { return enqueued_ - flag_value(copied_); }

bool ExpertAnswers::is_ready(ExpertSlots::Slot& slot) const {
  slot.ready = slot.ready || flag_reached(copied_, slot.copy);
  return slot.ready;
}

void ExpertAnswers::wait_for_copies(std::uint32_t most) const {
  const Pauses pauses;
  std::int64_t looked = now_ns();
  while (in_flight() > most && !cancelled_) {
    pauses.next();
    if (now_ns() - looked < 10'000'000) continue;
    look_for_faults();
    looked = now_ns();
  }
}

void ExpertAnswers::hold(std::size_t slot, Plan& plan) {
  plan.held.push_back(slot);
  slots_[slot].held = true;
}

// The slot is read by the group that is being formed.
void ExpertAnswers::read_by(std::size_t slot, const Plan& plan) {
  ExpertSlots::Slot& mine = slots_[slot];
  std::erase_if(mine.readers, is_over);
  mine.readers.push_back({&plan.call, plan.call.number, plan.group});
  mine.held = mine.unused = false;
  mine.scanned = mine.scanned && plan.call.whole;
  plan.call.map(plan.group)[mine.key % shape_.experts] = static_cast<std::int32_t>(slot);
}

// Enqueues the copy of an expert and returns its slot.
std::size_t ExpertAnswers::bring(Key key, bool scan, const ExpertSlots::Evictable& evictable) {
  // Enough for the groups in flight to be two ahead of the link.
  const std::size_t scan_slots =
      std::min(working_slots_, static_cast<std::size_t>(shape_.experts) / 3 + 4);
  const MemoryView block = on_host(key);
  const std::int64_t taken = slots_.take(key, scan, scan_slots, evictable);
  if (taken < 0) throw Exhausted("no slot can be evicted");
  const auto slot = static_cast<std::size_t>(taken);
  ExpertSlots::Slot& mine = slots_[slot];
  try {
    // All of them: they may be on different streams.
    for (const ExpertSlots::Reader& reader : mine.readers) {
      if (!is_over(reader)) fills_.wait(reader.call->read[reader.group]);
    }
    if (staging_) {
      staging_->bring(slot_memory(slot), block, copies_, fills_);
    } else {
      copy(slot_memory(slot), block, copies_);
    }
    copied_bytes_ += block.bytes;
    fills_.impl().write_value(copied_, enqueued_ + 1);
    mine.copy = ++enqueued_;
    mine.readers.clear();  // later copies come after this one
    if (reads_) reads_->copied_by(key, enqueued_);
    if (host_ != nullptr) host_->copied(key / shape_.experts, key % shape_.experts);
  } catch (...) {
    slots_.drop(slot);
    if (reads_ || staging_) drain();  // what was enqueued may still read the block or a buffer
    throw;
  }
  return slot;
}

// Once the stream has published its rows, leaves out experts without any.
void ExpertAnswers::forget_unneeded(Plan& plan) const {
  if (plan.routed || !flag_reached(plan.call.routed, plan.call.number)) return;
  plan.routed = true;
  plan.record.routed_ns = now_ns();
  const auto has_no_rows = [&](std::int32_t expert) { return plan.call.rows[expert] == 0; };
  std::erase_if(plan.needed, has_no_rows);
  std::erase_if(plan.todo, has_no_rows);
}

// Leaves experts to the host, and takes them out of `from`.
void ExpertAnswers::give_to_host(Plan& plan, std::vector<std::int32_t>& from,
                                 const std::vector<std::int32_t>& experts) {
  if (experts.empty()) return;
  std::erase_if(from, [&](std::int32_t expert) {
    return std::find(experts.begin(), experts.end(), expert) != experts.end();
  });
  plan.record.on_host = static_cast<std::uint32_t>(experts.size());
  plan.host_started = true;
  host_->start(*plan.call.host, experts);
}

// The first group: what is on the device.
void ExpertAnswers::give_hits(Plan& plan) {
  const bool shares = plan.call.host != nullptr && plan.routed;
  if (shares && host_->fixed()) {
    give_to_host(plan, plan.needed, host_->fixed_choice(plan.needed, plan.call.rows));
  }
  for (const std::int32_t expert : plan.needed) {
    const Key key = plan.call.layer * shape_.experts + expert;
    const std::int64_t found = slots_.find(key);
    if (found < 0) {
      plan.todo.push_back(expert);
      continue;
    }
    const auto slot = static_cast<std::size_t>(found);
    slots_.used(key);
    if (is_ready(slots_[slot])) {
      read_by(slot, plan);
      ++plan.record.hits;
    } else {
      hold(slot, plan);
      plan.todo.push_back(expert);
    }
  }
  if (shares && !host_->fixed()) {
    std::vector<std::int32_t> missing;
    for (const std::int32_t expert : plan.todo) {
      if (slots_.find(plan.call.layer * shape_.experts + expert) < 0) missing.push_back(expert);
    }
    give_to_host(plan, plan.todo,
                 host_->balanced_choice(plan.call.layer, missing, plan.call.rows, in_flight()));
  }
  plan.record.groups += plan.record.hits > 0 ? 1 : 0;
  // Then the groups that stay empty: their launches pass while others wait for copies.
  const std::size_t others = plan.call.groups - 1;
  plan.group = 1 + others - std::min(plan.todo.size(), others);
  for (std::size_t group = 0; group < plan.group; ++group) {
    set_flag(plan.call.flags + group, plan.call.number);
  }
  // What is being copied comes first, in the order of the copies.
  const auto when = [&](std::int32_t expert) {
    const std::int64_t slot = slots_.find(plan.call.layer * shape_.experts + expert);
    const std::uint32_t copy =
        slot < 0 ? enqueued_ + 1 : slots_[static_cast<std::size_t>(slot)].copy;
    return static_cast<std::int32_t>(copy - enqueued_);  // numbers wrap around
  };
  std::vector<std::pair<std::int32_t, std::int32_t>> order;
  for (const std::int32_t expert : plan.todo) order.emplace_back(when(expert), expert);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < order.size(); ++i) plan.todo[i] = order[i].second;
}

// The next group of those that wait for copies.
void ExpertAnswers::give_group(Plan& plan) {
  ExpertCall& call = plan.call;
  std::size_t size = expert_group_size(plan.todo.size(), call.groups - plan.group, working_slots_);
  std::vector<std::size_t>& slots = plan.forming;
  while (slots.size() < size && !plan.todo.empty()) {
    const std::int32_t expert = plan.todo.front();
    const Key key = call.layer * shape_.experts + expert;
    std::int64_t slot = slots_.find(key);
    if (slot >= 0) {
      ++plan.record.late;
    } else {
      if (call.whole) wait_for_copies(most_whole_copies);
      if (cancelled_) throw ExpertsClosed("the experts were closed while a call was in flight");
      slot = static_cast<std::int64_t>(bring(key, call.whole, [](const auto&) { return true; }));
      hold(static_cast<std::size_t>(slot), plan);
      ++plan.record.misses;
    }
    slots.push_back(static_cast<std::size_t>(slot));
    plan.todo.erase(plan.todo.begin());
    forget_unneeded(plan);
    size = std::min(size, slots.size() + plan.todo.size());
  }
  const bool waits = std::any_of(slots.begin(), slots.end(),
                                 [&](std::size_t slot) { return !is_ready(slots_[slot]); });
  for (const std::size_t slot : slots) read_by(slot, plan);
  if (waits) {
    fills_.impl().write_value(call.flags + plan.group, call.number);
  } else {
    set_flag(call.flags + plan.group, call.number);
  }
  plan.record.groups += slots.empty() ? 0 : 1;
  slots.clear();
  ++plan.group;
}

std::exception_ptr ExpertAnswers::answer(ExpertCall& call, ExpertCallRecord& record) {
  order_.called(call.layer, call.whole);
  record = {.layer = call.layer, .tokens = call.tokens, .enqueued_ns = call.enqueued_ns};
  Plan plan{.call = call, .record = record};
  std::exception_ptr failure;
  std::fill_n(call.maps, static_cast<std::int64_t>(call.groups) * shape_.experts, -1);
  try {
    for (std::int32_t e = 0; e < shape_.experts; ++e) plan.needed.push_back(e);
    forget_unneeded(plan);
    give_hits(plan);
    expect(call, plan.todo);
    while (!plan.todo.empty()) give_group(plan);
  } catch (...) {
    failure = std::current_exception();
    // What was copied for the group that failed is not known to arrive.
    for (const std::size_t slot : plan.forming) slots_.drop(slot);
  }
  for (const std::size_t slot : plan.held) slots_[slot].held = false;
  if (reads_) reads_->forget();
  release_groups(call, plan.group);
  if (call.host != nullptr && !plan.host_started) ExpertHost::release(*call.host);
  record.needed = record.hits + record.late + record.misses + record.on_host;
  record.answered_ns = now_ns();
  try {
    wish_ahead(call, plan.needed);
    for (; !hints_.empty(); hints_.pop_front()) {
      const Hint& hint = hints_.front();
      if (hint.layer != call.layer) wish(hint.layer, hint.experts);
    }
  } catch (...) {
    forget_wishes();  // only memory can be short: prefetching is optional
  }
  answered_ = call.serial;
  return failure;
}

void ExpertAnswers::wish(std::int64_t layer, std::span<const std::int32_t> experts) {
  for (const std::int32_t expert : experts) {
    wishes_.push_back({.key = layer * shape_.experts + expert});
  }
  // Wishes that nobody has had time for are old.
  while (wishes_.size() > last_needed_.size() * static_cast<std::size_t>(shape_.experts)) {
    wishes_.pop_front();
  }
  keep(layer);
}

void ExpertAnswers::keep(std::int64_t layer) {
  std::erase(kept_layers_, layer);
  kept_layers_.push_back(layer);
}

void ExpertAnswers::wish(const ExpertCall& hint) {
  std::vector<std::int32_t> experts;
  for (std::int32_t e = 0; e < shape_.experts; ++e) {
    if (hint.rows[e] > 0) experts.push_back(e);
  }
  if (hint.serial < answered_) return wish(hint.layer, experts);
  hints_.push_back({hint.layer, std::move(experts), now_ns() + hint_wait_ns_});
}

// Replaces the wishes by those that follow from a call.
void ExpertAnswers::wish_ahead(const ExpertCall& call, const std::vector<std::int32_t>& needed) {
  const auto is_old = [&](const Wish& wish) {
    return !wish.pinned && (wish.scan || wish.key / shape_.experts == call.layer);
  };
  wishes_.erase(std::remove_if(wishes_.begin(), wishes_.end(), is_old), wishes_.end());
  if (wishes_.empty()) kept_layers_.clear();
  std::erase(kept_layers_, call.layer);
  last_needed_[static_cast<std::size_t>(call.layer)] = needed;
  std::int64_t next = order_.after(call.layer, call.whole);
  if (call.whole) {
    for (int i = 0; i < layers_ahead && next != ExpertOrder::none && next != call.layer; ++i) {
      keep(next);
      for (std::int64_t e = 0; e < shape_.experts; ++e) {
        wishes_.push_back({.key = next * shape_.experts + e, .scan = true});
      }
      next = order_.after(next, true);
    }
  } else if (prefetch_ == ExpertPrefetch::previous && next != ExpertOrder::none &&
             next != call.layer) {
    wish(next, last_needed_[static_cast<std::size_t>(next)]);
  }
}

bool ExpertAnswers::prefetch_one() {
  for (; !hints_.empty() && now_ns() >= hints_.front().until_ns; hints_.pop_front()) {
    wish(hints_.front().layer, hints_.front().experts);
  }
  while (!wishes_.empty() && slots_.find(wishes_.front().key) >= 0) wishes_.pop_front();
  if (wishes_.empty()) {
    drop_wishes();
    return false;
  }
  const Wish wish = wishes_.front();
  if (in_flight() >= (wish.scan ? most_whole_copies : most_hinted_copies)) return false;
  const auto evictable = [&](const ExpertSlots::Slot& slot) {
    return !slot.unused && std::find(kept_layers_.begin(), kept_layers_.end(),
                                     slot.key / shape_.experts) == kept_layers_.end();
  };
  try {
    if (!is_on_host()) return false;
    wishes_.pop_front();
    slots_[bring(wish.key, wish.scan, evictable)].unused = true;
    ++prefetched_;
  } catch (const Exhausted&) {
    drop_wishes();  // what is there is worth more
    return false;
  } catch (const DeviceError&) {
    throw;  // calls will meet it, too
  } catch (...) {
    // Whoever needs the expert tries again, and reports what fails then.
    if (!wishes_.empty() && wishes_.front().key == wish.key) wishes_.pop_front();
  }
  return true;
}

void ExpertAnswers::forget_wishes() noexcept {
  hints_.clear();
  drop_wishes();
}

void ExpertAnswers::drop_wishes() noexcept {
  wishes_.clear();
  if (reads_) reads_->forget();
}

void ExpertAnswers::clear() noexcept {
  forget_wishes();
  if (host_ != nullptr) host_->forget();
  for (std::size_t slot = 0; slot < slots_.count(); ++slot) slots_.drop(slot);
}

void ExpertAnswers::look_for_faults() const {
  static_cast<void>(copies_.done());
  static_cast<void>(fills_.done());
}

void ExpertAnswers::drain() noexcept {
  copies_.impl().drain();
  fills_.impl().drain();
}

ExpertStatistics ExpertAnswers::statistics() const {
  return {.prefetched = prefetched_,
          .wasted = slots_.wasted(),
          .evicted = slots_.evicted(),
          .bytes = copied_bytes_};
}

}  // namespace ps::detail
