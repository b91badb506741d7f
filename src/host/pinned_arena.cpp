#include "penstock/host/pinned_arena.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

#include "host/available_memory.h"
#include "host/backend.h"
#include "host/fork.h"
#include "host/huge_pages.h"
#include "host/piece_borders.h"
#include "host/worker.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps {
namespace {

std::size_t checked_bytes(std::size_t bytes) {
  constexpr std::size_t most = std::size_t{1} << 62;
  if (bytes == 0 || bytes > most) {
    detail::throw_invalid("bytes", "between 1 and 2^62", std::to_string(bytes));
  }
  return bytes;
}

std::size_t checked_piece(const PinnedArenaOptions& options) {
  if (options.piece_bytes == 0) detail::throw_invalid("piece_bytes", "at least 1 byte", "0");
  return align_up(std::min(options.piece_bytes, options.bytes), detail::huge_page, "piece_bytes");
}

std::string memlock_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "the memlock limit is unlimited";
  }
  return "the memlock limit is " + format_bytes(limit.rlim_cur);
}

}  // namespace

struct PinnedArena::State {
  State(const Device& on, const PinnedArenaOptions& options)
      : device(on),
        bytes(checked_bytes(options.bytes)),
        piece(checked_piece(options)),
        on_demand(options.on_demand),
        pages(bytes),
        worker([on] { on.backend().enter_thread(); }) {
    if (device.kind() == DeviceKind::cuda) borders.emplace(pages.data(), bytes, piece);
  }

  void lock(std::size_t end) noexcept;
  void ask_for(std::size_t end);
  void lock_piece(std::size_t begin, std::size_t count) const;
  void unlock_all() noexcept;

  const Device device;
  const std::size_t bytes, piece;
  const bool on_demand;
  const detail::HugePages pages;
  std::optional<detail::PieceBorders> borders;

  std::mutex mutex;
  std::condition_variable changed;
  std::size_t asked = 0;  // bytes that are locked, or that the worker has been told to lock
  std::atomic<std::size_t> ready{0};
  std::atomic<bool> stop{false};
  std::exception_ptr error;
  detail::Worker worker;
};

void PinnedArena::State::lock_piece(std::size_t begin, std::size_t count) const {
  const std::string so_far = format_bytes(begin) + " are ready; ";
  // Touching memory that is not there would end the process.
  const std::size_t needed = on_demand ? count : bytes - begin;
  if (const std::size_t available = detail::available_memory(); needed > available) {
    throw OutOfMemory("host memory", bytes, so_far + format_bytes(available) + " are available");
  }
  pages.touch(begin, count);
  try {
    device.backend().lock_pages(pages.data() + begin, count);
  } catch (const OutOfMemory&) {
    throw OutOfMemory("page-locked memory", bytes, so_far + memlock_limit());
  }
}

// The pieces before `end` that are not locked yet. On the worker.
void PinnedArena::State::lock(std::size_t end) noexcept {
  for (std::size_t begin = ready; begin < end && !stop && !error; begin += piece) {
    const std::size_t count = std::min(piece, bytes - begin);
    std::exception_ptr failure;
    try {
      lock_piece(begin, count);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard guard(mutex);
    if (failure) {
      error = std::move(failure);
    } else {
      ready = begin + count;
    }
    changed.notify_all();
  }
}

// With `mutex` held.
void PinnedArena::State::ask_for(std::size_t end) {
  if (end <= asked) return;
  worker.post([this, end] { lock(end); });
  asked = end;
}

void PinnedArena::State::unlock_all() noexcept {
  for (std::size_t begin = 0; begin < ready; begin += piece) {
    device.backend().unlock_pages(pages.data() + begin);
  }
}

PinnedArena::PinnedArena(const Device& device, PinnedArenaOptions options) {
  detail::refuse_after_fork();
  state_ = std::make_unique<State>(device, options);
  const std::lock_guard lock(state_->mutex);
  state_->ask_for(options.on_demand ? state_->piece : state_->bytes);
}

PinnedArena::~PinnedArena() {
  if (detail::forked()) {
    // The thread and the locks are the parent's.
    [[maybe_unused]] const State* kept = state_.release();
    return;
  }
  state_->stop = true;
  state_->worker.drain();
  state_->unlock_all();
}

MemoryView PinnedArena::view() const {
  return {state_->pages.data(), state_->bytes, {Memory::pinned}};
}
std::size_t PinnedArena::bytes() const { return state_->bytes; }
std::size_t PinnedArena::piece_bytes() const { return state_->piece; }

std::size_t PinnedArena::ready() const { return state_->ready; }

void PinnedArena::wait(std::size_t bytes) const {
  if (bytes > state_->bytes) {
    detail::throw_invalid("bytes", fmt::format("at most {}, all of the arena", state_->bytes),
                          std::to_string(bytes));
  }
  if (state_->ready >= bytes && !state_->on_demand) return;
  detail::refuse_after_fork();
  std::unique_lock lock(state_->mutex);
  // Whole pieces, and the next one, so that it is there when it is needed.
  const std::size_t pieces = (bytes + state_->piece - 1) / state_->piece + 1;
  state_->ask_for(std::min(state_->bytes, pieces * state_->piece));
  state_->changed.wait(lock, [&] { return state_->ready >= bytes || state_->error; });
  if (state_->ready < bytes) std::rethrow_exception(state_->error);
}

}  // namespace ps
