#include "penstock/host/slot_cache.h"

#include <memory>
#include <new>
#include <utility>

#include "host/fork.h"
#include "host/slot_cache_state.h"
#include "penstock/base/error.h"

namespace ps {

SlotCache::Slot::Slot(std::shared_ptr<detail::SlotCacheState> state,
                      std::shared_ptr<detail::CachedSlot> slot, bool hit)
    : state_(std::move(state)), slot_(std::move(slot)), hit_(hit), must_fill_(!hit) {}
SlotCache::Slot::Slot(Slot&& other) noexcept
    : state_(std::move(other.state_)),
      slot_(std::move(other.slot_)),
      hit_(other.hit_),
      must_fill_(std::exchange(other.must_fill_, false)) {}
SlotCache::Slot& SlotCache::Slot::operator=(Slot&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(slot_, other.slot_);
  std::swap(hit_, other.hit_);
  std::swap(must_fill_, other.must_fill_);
  return *this;
}
SlotCache::Slot::~Slot() { release(); }

detail::CachedSlot& SlotCache::Slot::held() const {
  if (!slot_) detail::throw_invalid("slot", "a handle that holds a slot", "one that was released");
  return *slot_;
}

void SlotCache::Slot::check_filling() const {
  held();
  if (!must_fill_) {
    detail::throw_invalid("slot", "one that this handle has to fill",
                          hit_ ? "a hit" : "one that it has filled");
  }
}

CacheKey SlotCache::Slot::key() const { return held().key; }
MemoryView SlotCache::Slot::view() const {
  const detail::CachedSlot& slot = held();
  return state_->view(slot);
}
std::size_t SlotCache::Slot::index() const {
  const detail::CachedSlot& slot = held();
  return state_->index(slot);
}

void SlotCache::Slot::filled() {
  check_filling();
  state_->fill_now(*slot_);
  must_fill_ = false;
}

void SlotCache::Slot::filled(const Stream& stream) {
  check_filling();
  state_->use(slot_, stream, "SlotCache::Slot::filled", true);
  must_fill_ = false;
}

void SlotCache::Slot::filled(const Event& event) {
  check_filling();
  state_->fill_by(slot_, event);
  must_fill_ = false;
}

void SlotCache::Slot::fail(std::exception_ptr error) {
  check_filling();
  if (!error) detail::throw_invalid("error", "an exception", "null");
  must_fill_ = false;
  state_->release(*slot_, std::move(error));
  slot_.reset();
  state_.reset();
}

void SlotCache::Slot::fail_after(const Stream& stream, std::exception_ptr error) {
  check_filling();
  if (!error) detail::throw_invalid("error", "an exception", "null");
  state_->use(slot_, stream, "SlotCache::Slot::fail_after");
  fail(std::move(error));
}

void SlotCache::Slot::join(const Stream& stream) const {
  held();
  if (must_fill_) detail::throw_invalid("slot", "one that is filled", "one to fill");
  state_->join(*slot_, stream);
}

void SlotCache::Slot::wait() const {
  held();
  if (must_fill_) detail::throw_invalid("slot", "one that is filled", "one to fill");
  state_->wait(*slot_);
}

bool SlotCache::Slot::ready() const {
  detail::CachedSlot& slot = held();
  return state_->ready(slot);
}

void SlotCache::Slot::release_after(const Stream& stream) {
  held();
  if (must_fill_) detail::throw_invalid("slot", "one that is filled", "one to fill");
  state_->use(slot_, stream, "SlotCache::Slot::release_after");
  release();
}

void SlotCache::Slot::release() noexcept {
  if (!slot_) return;
  std::exception_ptr error;
  if (std::exchange(must_fill_, false)) error = detail::SlotCacheState::abandoned(slot_->key);
  state_->release(*slot_, std::move(error));
  slot_.reset();
  state_.reset();
}

SlotCache::SlotCache(const Device& device, MemoryView memory, SlotCacheOptions options)
    : state_(std::make_shared<detail::SlotCacheState>(device, memory, std::move(options))) {}

SlotCache::~SlotCache() {
  if (detail::forked()) {
    // Its streams and events may be locked by threads, which exist in the parent only.
    [[maybe_unused]] const auto* kept =
        new (std::nothrow) std::shared_ptr<detail::SlotCacheState>(std::move(state_));
    return;
  }
  state_->drain();
}

SlotCache::Slot SlotCache::acquire(CacheKey key, std::size_t bytes) {
  std::optional<std::chrono::nanoseconds> timeout;
  if (state_->when_exhausted() == WhenExhausted::fail) timeout.emplace(0);
  auto acquired = state_->acquire(key, bytes, timeout);
  if (!acquired) throw Exhausted(state_->exhausted_message(bytes));
  return {state_, std::move(acquired->slot), acquired->hit};
}

std::optional<SlotCache::Slot> SlotCache::try_acquire(CacheKey key, std::size_t bytes,
                                                      std::chrono::nanoseconds timeout) {
  auto acquired = state_->acquire(key, bytes, timeout);
  if (!acquired) return std::nullopt;
  return Slot(state_, std::move(acquired->slot), acquired->hit);
}

std::optional<SlotCache::Slot> SlotCache::acquire_cached(CacheKey key) {
  auto acquired = state_->acquire_cached(key);
  if (!acquired) return std::nullopt;
  return Slot(state_, std::move(acquired->slot), acquired->hit);
}

std::optional<SlotCache::Found> SlotCache::find(CacheKey key) const { return state_->find(key); }
SlotCacheStatistics SlotCache::statistics() const { return state_->statistics(); }

}  // namespace ps
