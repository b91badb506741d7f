#include "host/growing_planes.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "host/fork.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

// Between two looks at the events that memory to be unmapped waits for.
constexpr std::chrono::microseconds pause{200};

}  // namespace

GrowingPlanes::GrowingPlanes(const Device& device, GrowingPlanesOptions options)
    : row_bytes_(std::move(options.row_bytes)),
      capacity_(options.capacity),
      ahead_(options.ahead),
      blocks_(row_bytes_.size()),
      worker_([backend = device.backend().shared_from_this()] { backend->enter_thread(); }) {
  // The size of a page is known only to a range.
  const std::size_t page = device.backend().make_address_range(1)->page();
  block_bytes_ = checked_mul(ceil_div(std::max<std::size_t>(1, options.block_bytes), page), page,
                             "block_bytes");
  const std::size_t longest = *std::ranges::max_element(row_bytes_);
  const std::size_t bytes = checked_mul(longest, capacity_, "capacity");
  plane_bytes_ = checked_mul(ceil_div(bytes, block_bytes_), block_bytes_, "capacity");
  range_ =
      device.backend().make_address_range(checked_mul(plane_bytes_, row_bytes_.size(), "capacity"));
}

GrowingPlanes::~GrowingPlanes() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  worker_.drain();
  streams_.drain(range_->backend());
}

void GrowingPlanes::need(std::size_t rows) {
  refuse_after_fork();
  std::unique_lock lock(mutex_);
  needed_ = rows;
  wanted_ = std::min(capacity_, checked_add(rows, ahead_, "ahead"));
  kept_ = std::max(kept_, wanted_);
  if (rows_mapped() < rows) {
    short_of_memory_ = false;
  } else if (rows_mapped() >= wanted_ || short_of_memory_) {
    return;
  }
  before_ = blocks_;
  ++calls_;
  start();
  if (rows_mapped() >= rows) return;
  ++waits_;
  changed_.wait(lock, [&] { return rows_mapped() >= rows || failure_; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void GrowingPlanes::shrink(std::size_t rows) {
  StreamSet::Mark mark = streams_.mark(range_->backend().device());
  refuse_after_fork();
  const std::lock_guard lock(mutex_);
  needed_ = wanted_ = kept_ = rows;
  shrinking_ = std::move(mark);
  start();
}

std::size_t GrowingPlanes::mapped_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t blocks = 0;
  for (const std::size_t each : blocks_) blocks += each;
  return blocks * block_bytes_;
}

std::size_t GrowingPlanes::mapped_rows() const {
  const std::lock_guard lock(mutex_);
  return rows_mapped();
}

// Of all planes.
std::size_t GrowingPlanes::rows_mapped() const {
  std::size_t rows = capacity_;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    rows = std::min(rows, blocks_[i] * block_bytes_ / row_bytes_[i]);
  }
  return rows;
}

// The plane with the fewest rows, if more are wanted.
std::optional<std::size_t> GrowingPlanes::next_to_map() const {
  const std::size_t target = short_of_memory_ ? needed_ : wanted_;
  std::optional<std::size_t> found;
  std::size_t fewest = target;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const std::size_t rows = blocks_[i] * block_bytes_ / row_bytes_[i];
    if (rows < fewest) found = i, fewest = rows;
  }
  return found;
}

// A plane whose last block holds none of the rows that are kept.
std::optional<std::size_t> GrowingPlanes::next_to_unmap() const {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i] > ceil_div(kept_ * row_bytes_[i], block_bytes_)) return i;
  }
  return std::nullopt;
}

// Called with the lock held.
void GrowingPlanes::start() {
  if (!running_) {
    worker_.post([this] { run(); });
    running_ = true;
  }
  changed_.notify_all();
}

void GrowingPlanes::run() noexcept {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    if (const auto plane = next_to_map()) {
      map(*plane, lock);
    } else if (!shrinking_) {
      break;
    } else if (const auto last = next_to_unmap(); !last) {
      shrinking_.reset();
    } else if (may_unmap(lock)) {
      unmap(*last, lock);
    } else {
      changed_.wait_for(lock, pause);
    }
  }
  running_ = false;
  changed_.notify_all();
}

void GrowingPlanes::map(std::size_t plane, std::unique_lock<std::mutex>& lock) {
  const std::size_t offset = plane * plane_bytes_ + blocks_[plane] * block_bytes_;
  const std::uint64_t call = calls_;
  lock.unlock();
  std::exception_ptr failure;
  try {
    range_->map(offset, block_bytes_);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (!failure) {
    ++blocks_[plane];
  } else if (rows_mapped() >= needed_) {
    short_of_memory_ = true;
  } else if (call == calls_) {  // otherwise need() was called meanwhile, and memory may be free now
    // Those that this need() has mapped are of no use, and no work has used them.
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      while (blocks_[i] > before_[i]) unmap(i, lock);
    }
    failure_ = std::move(failure);
    needed_ = wanted_ = rows_mapped();
  }
  changed_.notify_all();
}

void GrowingPlanes::unmap(std::size_t plane, std::unique_lock<std::mutex>& lock) {
  const std::size_t offset = plane * plane_bytes_ + --blocks_[plane] * block_bytes_;
  short_of_memory_ = false;
  lock.unlock();
  range_->unmap(offset, block_bytes_);
  lock.lock();
}

// Whether the work that may use the memory has completed. Work that failed has, too: its error
// stays for the owner of its stream.
bool GrowingPlanes::may_unmap(std::unique_lock<std::mutex>& lock) {
  if (std::exchange(shrinking_->all, false)) {
    lock.unlock();
    range_->backend().drain();
    lock.lock();
    return false;  // as much may have changed meanwhile
  }
  std::vector<Event>& events = shrinking_->events;
  std::erase_if(events, [](const Event& event) {
    try {
      return event.done();
    } catch (...) {
      return true;
    }
  });
  return events.empty();
}

}  // namespace ps::detail
