// Pieces moved by the kernel's queues. Whoever submits fills the submission queue under a mutex;
// one thread takes the completions, and sends on what came back short.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "host/fork.h"
#include "host/storage/transfer.h"
#include "penstock/base/error.h"

#if PENSTOCK_WITH_URING
#include <liburing.h>
#endif

namespace ps::detail {

#if PENSTOCK_WITH_URING

namespace {

constexpr std::uint64_t wake_up = ~std::uint64_t{0};  // not the number of a place

// Owned by the engine and by its thread.
class State {
 public:
  explicit State(std::size_t in_flight) : places_(in_flight) {
    free_.reserve(in_flight);
    for (std::size_t i = in_flight; i > 0; --i) free_.push_back(i - 1);
  }
  ~State() {
    if (open_) io_uring_queue_exit(&ring_);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // 0 or -errno. One entry more than there are places: the wake-up must always fit.
  int open() {
    const int status = io_uring_queue_init(static_cast<unsigned>(places_.size() + 1), &ring_, 0);
    open_ = status == 0;
    return status;
  }

  void submit(Piece piece) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(piece));
    fill();
    send();
  }

  void close() {
    if (forked()) return;  // the queues are the parent's, which still uses them
    const std::lock_guard lock(mutex_);
    closing_ = true;
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data64(entry, wake_up);
    send();
  }

  void loop() {
    for (;;) {
      io_uring_cqe* entry = nullptr;
      const int status = io_uring_wait_cqe(&ring_, &entry);
      if (status == -EINTR) continue;
      if (status < 0) return;  // the ring is broken, which only a defect here can cause
      const std::uint64_t place = io_uring_cqe_get_data64(entry);
      const int moved = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      if (place != wake_up) complete(static_cast<std::size_t>(place), moved);
      const std::lock_guard lock(mutex_);
      if (closing_ && free_.size() == places_.size() && waiting_.empty()) return;
    }
  }

 private:
  // advance() runs without the mutex, because the completion it may call can submit more.
  void complete(std::size_t place, int moved) {
    const bool over = places_[place].advance(moved);
    const std::lock_guard lock(mutex_);
    if (over) {
      free_.push_back(place);
    } else {
      prepare(place);
    }
    fill();
    send();
  }

  // Gives waiting pieces the places that are free.
  void fill() {
    while (!waiting_.empty() && !free_.empty()) {
      const std::size_t place = free_.back();
      free_.pop_back();
      places_[place] = std::move(waiting_.front());
      waiting_.pop_front();
      prepare(place);
    }
  }

  // The kernel may be short of memory for a moment.
  void send() {
    for (int status = -EAGAIN; status == -EAGAIN || status == -EBUSY || status == -EINTR;) {
      status = io_uring_submit(&ring_);
      if (status < 0) std::this_thread::yield();
    }
  }

  void prepare(std::size_t place) {
    const Piece& piece = places_[place];
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    const auto bytes = static_cast<unsigned>(piece.bytes);
    if (piece.write) {
      io_uring_prep_write(entry, piece.fd, piece.data, bytes, piece.offset);
    } else {
      io_uring_prep_read(entry, piece.fd, piece.data, bytes, piece.offset);
    }
    io_uring_sqe_set_data64(entry, place);
  }

  std::mutex mutex_;  // of the submission queue and everything below
  io_uring ring_{};
  bool open_ = false, closing_ = false;
  std::vector<Piece> places_;  // on their way
  std::vector<std::size_t> free_;
  std::deque<Piece> waiting_;
};

class UringEngine final : public TransferEngine {
 public:
  explicit UringEngine(std::shared_ptr<State> state) : state_(std::move(state)) {
    std::thread([state = state_] { state->loop(); }).detach();
  }
  ~UringEngine() override { state_->close(); }

  FileEngine kind() const override { return FileEngine::uring; }
  void submit(Piece piece) override { state_->submit(std::move(piece)); }

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace

std::unique_ptr<TransferEngine> make_uring_engine(std::size_t in_flight, std::string& why) {
  auto state = std::make_shared<State>(in_flight);
  if (const int status = state->open(); status != 0) {
    why = fmt::format("the system does not allow io_uring: {}", std::strerror(-status));
    return nullptr;
  }
  return std::make_unique<UringEngine>(std::move(state));
}

#else

std::unique_ptr<TransferEngine> make_uring_engine(std::size_t /*in_flight*/, std::string& why) {
  why = "this build has no io_uring";
  return nullptr;
}

#endif

}  // namespace ps::detail
