// Pieces moved by the kernel's queues. Whoever submits fills the submission queue under a mutex;
// one thread takes the completions, and sends on what came back short.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "host/fork.h"
#include "host/storage/transfer.h"
#include "host/storage/waiting.h"
#include "penstock/base/error.h"

#if PENSTOCK_WITH_URING
#include <liburing.h>
#endif

namespace ps::detail {

#if PENSTOCK_WITH_URING

namespace {

constexpr std::uint64_t wake_up = ~std::uint64_t{0};  // not the number of a place

class UringEngine final : public TransferEngine {
 public:
  explicit UringEngine(std::size_t in_flight) : places_(in_flight) {
    free_.reserve(in_flight);
    for (std::size_t i = in_flight; i > 0; --i) free_.push_back(i - 1);
  }
  ~UringEngine() override {
    if (open_) io_uring_queue_exit(&ring_);
  }

  // 0 or -errno. One entry more than there are places: the wake-up must always fit.
  int open() {
    const int status = io_uring_queue_init(static_cast<unsigned>(places_.size() + 1), &ring_, 0);
    open_ = status == 0;
    return status;
  }

  FileEngine kind() const override { return FileEngine::uring; }

  void submit(Piece piece) override {
    const std::lock_guard lock(mutex_);
    waiting_.push(std::move(piece));
    fill();
    if (!dropped_.empty()) wake();
    send();
  }

  void drop_cancelled() override {
    const std::lock_guard lock(mutex_);
    waiting_.take_cancelled(dropped_);
    if (dropped_.empty()) return;
    wake();
    send();
  }

  void close() override {
    if (forked()) return;  // the queues are the parent's, which still uses them
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake();
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
      if (drop(place == wake_up)) return;
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

  // Drops pieces, also without the mutex. Whether the engine has nothing left to do, ever.
  bool drop(bool woken) {
    std::unique_lock lock(mutex_);
    if (woken) waking_ = false;
    while (!dropped_.empty()) {
      std::vector<Piece> dropped = std::exchange(dropped_, {});
      lock.unlock();
      for (Piece& piece : dropped) piece.drop();
      lock.lock();
    }
    return closing_ && free_.size() == places_.size() && waiting_.empty();
  }

  // Gives waiting pieces the places that are free.
  void fill() {
    while (!waiting_.empty() && !free_.empty()) {
      Piece piece = waiting_.pop();
      if (piece.transfer->cancelled()) {
        dropped_.push_back(std::move(piece));
        continue;
      }
      const std::size_t place = free_.back();
      free_.pop_back();
      places_[place] = std::move(piece);
      prepare(place);
    }
  }

  // Has the thread look at what is to be dropped, or at closing_.
  void wake() {
    if (std::exchange(waking_, true)) return;
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data64(entry, wake_up);
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
  bool waking_ = false;        // a wake-up is in flight
  std::vector<Piece> places_;  // in flight
  std::vector<std::size_t> free_;
  WaitingPieces waiting_;
  std::vector<Piece> dropped_;
};

}  // namespace

std::shared_ptr<TransferEngine> make_uring_engine(std::size_t in_flight, std::string& why) {
  auto engine = std::make_shared<UringEngine>(in_flight);
  if (const int status = engine->open(); status != 0) {
    why = fmt::format("the system does not allow io_uring: {}", std::strerror(-status));
    return nullptr;
  }
  std::thread([engine] { engine->loop(); }).detach();
  return engine;
}

#else

std::shared_ptr<TransferEngine> make_uring_engine(std::size_t /*in_flight*/, std::string& why) {
  why = "this build has no io_uring";
  return nullptr;
}

#endif

}  // namespace ps::detail
