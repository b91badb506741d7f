// A GPU as a device, reached through the driver table.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "host/backend.h"
#include "host/cuda/driver.h"
#include "host/huge_pages.h"

namespace ps::cuda {

class Backend final : public detail::Backend {
 public:
  Backend(std::shared_ptr<Driver> driver, int index) : driver_(std::move(driver)), index_(index) {}

  DeviceKind kind() const override { return DeviceKind::cuda; }
  int index() const override { return index_; }
  Capabilities capabilities() override;
  void synchronize() override;
  void drain() noexcept override;

  std::shared_ptr<detail::EventImpl> make_event(const EventOptions& options) override;
  std::shared_ptr<detail::StreamImpl> make_stream(const StreamOptions& options) override;
  std::shared_ptr<detail::StreamImpl> borrow_stream(void* native) override;
  std::shared_ptr<detail::PoolImpl> make_pool(const PoolOptions& options) override;
  std::unique_ptr<detail::AddressRangeImpl> make_address_range(std::size_t capacity) override;
  std::unique_ptr<detail::SignalImpl> make_signal(std::uint32_t value) override;

  void* allocate_pinned(std::size_t bytes) override;
  void free_pinned(void* data, std::size_t bytes) noexcept override;
  void lock_pages(void* data, std::size_t bytes) override;
  void unlock_pages(void* data) noexcept override;
  void* allocate_device(std::size_t bytes) override;
  void free_device(void* data, std::size_t bytes) noexcept override;

  void enter_thread() override;
  std::unique_ptr<detail::Current> make_current() override;
  std::uint64_t allocations() const override { return allocations_.load(); }

  Driver& driver() { return *driver_; }
  const Properties& properties();
  void count_allocation() { ++allocations_; }

  // Throws DeviceError for a status that is not success, after clearing it from the driver; a
  // status that ends the device is remembered, and check_alive() throws DeviceLost from then on.
  void check(Status status, const char* call);
  // As check(), with OutOfMemory for a lack of memory.
  void check_memory(Status status, const char* call, const std::string& place, std::size_t bytes,
                    const std::string& why = {});
  void check_alive();

 private:
  // Null if the system refuses.
  void* allocate_registered(std::size_t bytes);

  std::shared_ptr<Driver> driver_;
  int index_;
  std::atomic<std::uint64_t> allocations_{0};
  std::once_flag properties_once_;
  Properties properties_;
  std::atomic<bool> lost_{false};
  std::mutex lost_mutex_;
  std::string lost_cause_;
  Status lost_status_ = success;
  std::mutex registered_mutex_;
  std::map<void*, detail::HugePages> registered_;  // what allocate_registered() returned
};

// Makes the device current on this thread for a scope. Throws nothing: what follows reports.
class Guard final : public detail::Current {
 public:
  explicit Guard(Backend& backend);
  ~Guard() override;
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Driver& driver_;
  int before_ = -1;
  bool changed_ = false;
};

// An event for use inside the backend; destroyed with it.
class EventOwner {
 public:
  EventOwner(std::shared_ptr<Backend> backend, bool timing, bool blocking);
  ~EventOwner();
  EventOwner(const EventOwner&) = delete;
  EventOwner& operator=(const EventOwner&) = delete;
  EventHandle handle() const { return handle_; }
  // Looks again and again until the event was reached, sleeping in between.
  Status poll() const;

 private:
  std::shared_ptr<Backend> backend_;
  EventHandle handle_ = nullptr;
};

}  // namespace ps::cuda
