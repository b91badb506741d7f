// The CPU as a device.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "host/backend.h"
#include "host/cpu/heap.h"
#include "host/worker.h"

namespace ps::cpu {

class Backend final : public detail::Backend {
 public:
  explicit Backend(std::shared_ptr<Heap> heap = std::make_shared<Heap>())
      : heap_(std::move(heap)) {}

  DeviceKind kind() const override { return DeviceKind::cpu; }
  int index() const override { return cpu_index; }
  Capabilities capabilities() override;
  void synchronize() override;
  void drain() noexcept override;

  std::shared_ptr<detail::EventImpl> make_event(const EventOptions& options) override;
  std::shared_ptr<detail::StreamImpl> make_stream(const StreamOptions& options) override;
  std::shared_ptr<detail::StreamImpl> borrow_stream(void* native) override;
  std::shared_ptr<detail::PoolImpl> make_pool(const PoolOptions& options) override;
  std::unique_ptr<detail::AddressRangeImpl> make_address_range(std::size_t capacity) override;
  std::unique_ptr<detail::SignalImpl> make_signal(std::uint32_t /*value*/) override {
    return nullptr;  // a stream of the CPU waits by a host function
  }

  void* allocate_pinned(std::size_t bytes) override;
  void free_pinned(void* data, std::size_t bytes) noexcept override;
  void lock_pages(void* /*data*/, std::size_t /*bytes*/) override {}
  void unlock_pages(void* /*data*/) noexcept override {}
  void* allocate_device(std::size_t bytes) override { return allocate_pinned(bytes); }
  void free_device(void* data, std::size_t bytes) noexcept override { free_pinned(data, bytes); }

  void enter_thread() override {}
  std::unique_ptr<detail::Current> make_current() override { return nullptr; }
  std::uint64_t allocations() const override { return allocations_.load(); }

 private:
  // A stream, and the work that is left of it when its last handle is gone.
  struct Made {
    std::weak_ptr<detail::StreamImpl> stream;
    detail::Worker::Remainder remainder;
  };
  std::vector<Made> made_streams();

  std::shared_ptr<Heap> heap_;
  std::mutex mutex_;
  std::vector<Made> streams_;
  std::atomic<std::uint64_t> allocations_{0};
};

}  // namespace ps::cpu
