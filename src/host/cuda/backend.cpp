#include "host/cuda/backend.h"

#include <fmt/format.h>

#include <optional>

#include "host/available_memory.h"
#include "host/clock.h"
#include "host/cuda/address_range.h"
#include "host/cuda/event.h"
#include "host/cuda/pool.h"
#include "host/cuda/signal.h"
#include "host/cuda/stream.h"
#include "host/link.h"
#include "penstock/base/error.h"

namespace ps::cuda {

bool is_sticky(Status status) {
  switch (status) {
    case 46:   // devices unavailable
    case 100:  // no device
    case 214:  // uncorrectable memory error
    case 220:  // link error
    case 226:  // contained memory error
    case 700:  // illegal address
    case 702:  // launch timeout
    case 709:  // context is destroyed
    case 710:  // device assert
    case 714:  // hardware stack error
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid program counter
    case 719:  // launch failure
    case 721:  // tensor memory leak
      return true;
    default:
      return false;
  }
}

const Properties& Backend::properties() {
  std::call_once(properties_once_,
                 [&] { check(driver_->properties(index_, &properties_), "reading properties"); });
  return properties_;
}

Capabilities Backend::capabilities() {
  const Properties& p = properties();
  Capabilities result;
  result.name = p.name;
  result.compute_major = p.major;
  result.compute_minor = p.minor;
  result.multiprocessors = p.multiprocessors;
  result.copy_engines = p.copy_engines;
  // 128 on every architecture from 7.0 on; the driver has no query for it.
  result.concurrent_grids = p.major >= 7 ? 128 : 0;
  result.memory_bytes = p.total_bytes;
  result.l2_bytes = p.l2_bytes;
  result.memory_pools = p.memory_pools;
  result.virtual_memory = p.virtual_memory;
  result.stream_wait_value = p.stream_wait_value;
  result.link = detail::read_link(p.pci_address);
  result.numa_node = detail::read_numa_node(p.pci_address);
  const Guard guard(*this);
  std::size_t total = 0;
  check(driver_->memory_info(&result.free_bytes, &total), "reading free memory");
  return result;
}

void Backend::synchronize() {
  const Guard guard(*this);
  check(driver_->device_synchronize(), "synchronising the device");
}

void Backend::drain() noexcept {
  const Guard guard(*this);
  if (driver_->device_synchronize() != success) driver_->last_error();
}

void Backend::check(Status status, const char* call) {
  if (status == success) return;
  check_alive();
  const std::string meaning =
      fmt::format("{}, {}", driver_->error_name(status), driver_->error_meaning(status));
  const DeviceError error(name(), call, status, meaning);
  // Clears what can be cleared, so that the caller's next own check does not find our error.
  driver_->last_error();
  if (is_sticky(status)) {
    const std::lock_guard lock(lost_mutex_);
    if (!lost_) {
      lost_cause_ = error.what();
      lost_status_ = status;
      lost_ = true;
    }
  }
  throw error;
}

void Backend::check_memory(Status status, const char* call, const std::string& place,
                           std::size_t bytes, const std::string& why) {
  if (status == memory_allocation) {
    driver_->last_error();
    throw OutOfMemory(place, bytes, why);
  }
  check(status, call);
}

void Backend::check_alive() {
  if (!lost_) return;
  const std::lock_guard lock(lost_mutex_);
  throw DeviceLost(name(), lost_cause_, lost_status_);
}

std::shared_ptr<detail::EventImpl> Backend::make_event(const EventOptions& options) {
  return std::make_shared<Event>(std::static_pointer_cast<Backend>(shared_from_this()), options);
}

std::shared_ptr<detail::StreamImpl> Backend::make_stream(const StreamOptions& options) {
  check_alive();
  const Guard guard(*this);
  StreamHandle handle = nullptr;
  check_memory(driver_->stream_create(&handle, options.priority == Priority::high),
               "creating a stream", "stream resources of " + name(), 0);
  count_allocation();
  return std::make_shared<Stream>(std::static_pointer_cast<Backend>(shared_from_this()), handle,
                                  true);
}

std::shared_ptr<detail::StreamImpl> Backend::borrow_stream(void* native) {
  check_alive();
  return std::make_shared<Stream>(std::static_pointer_cast<Backend>(shared_from_this()), native,
                                  false);
}

std::shared_ptr<detail::PoolImpl> Backend::make_pool(const PoolOptions& options) {
  return std::make_shared<Pool>(std::static_pointer_cast<Backend>(shared_from_this()), options);
}

std::unique_ptr<detail::AddressRangeImpl> Backend::make_address_range(std::size_t capacity) {
  return std::make_unique<AddressRange>(std::static_pointer_cast<Backend>(shared_from_this()),
                                        capacity);
}

std::unique_ptr<detail::SignalImpl> Backend::make_signal(std::uint32_t value) {
  if (!properties().stream_wait_value) return nullptr;
  return std::make_unique<Signal>(std::static_pointer_cast<Backend>(shared_from_this()), value);
}

void* Backend::allocate_pinned(std::size_t bytes) {
  check_alive();
  const Guard guard(*this);
  if (void* data = allocate_registered(bytes)) return data;
  void* data = nullptr;
  check_memory(driver_->host_alloc(&data, bytes), "page-locking memory", "page-locked memory",
               bytes, "lower the depth or the chunk, or raise the memlock limit");
  count_allocation();
  return data;
}

// Locking huge pages that are already there takes a small part of the time of cudaHostAlloc.
void* Backend::allocate_registered(std::size_t bytes) {
  if (bytes < detail::huge_pages_from || !properties().registered_memory) return nullptr;
  // Touching memory that is not there would end the process; cudaHostAlloc fails instead.
  if (bytes > detail::available_memory()) return nullptr;
  std::optional<detail::HugePages> pages;
  try {
    pages.emplace(bytes);
  } catch (const OutOfMemory&) {
    return nullptr;
  }
  pages->touch(0, bytes);
  void* data = pages->data();
  {
    const std::lock_guard lock(registered_mutex_);
    registered_.emplace(data, std::move(*pages));
  }
  if (driver_->host_register(data, bytes) != success) {
    driver_->last_error();
    const std::lock_guard lock(registered_mutex_);
    registered_.erase(data);
    return nullptr;
  }
  count_allocation();
  return data;
}

void Backend::free_pinned(void* data, std::size_t /*bytes*/) noexcept {
  {
    std::unique_lock lock(registered_mutex_);
    if (auto pages = registered_.extract(data)) {
      lock.unlock();
      unlock_pages(data);
      return;
    }
  }
  const Guard guard(*this);
  if (driver_->host_free(data) != success) driver_->last_error();
}

void Backend::lock_pages(void* data, std::size_t bytes) {
  check_alive();
  if (!properties().registered_memory) {
    throw Unsupported(name() + " cannot use memory that is page-locked in place; use PinnedBuffer");
  }
  const Guard guard(*this);
  Status status = driver_->host_register(data, bytes);
  if (status == operating_system) status = memory_allocation;  // the system refuses to lock
  check_memory(status, "page-locking memory", "page-locked memory", bytes);
  count_allocation();
}

void Backend::unlock_pages(void* data) noexcept {
  const Guard guard(*this);
  if (driver_->host_unregister(data) != success) driver_->last_error();
}

void* Backend::allocate_device(std::size_t bytes) {
  check_alive();
  const Guard guard(*this);
  void* data = nullptr;
  check_memory(driver_->device_alloc(&data, bytes), "allocating device memory",
               "device memory of " + name(), bytes);
  count_allocation();
  return data;
}

void Backend::free_device(void* data, std::size_t /*bytes*/) noexcept {
  const Guard guard(*this);
  if (driver_->device_free(data) != success) driver_->last_error();
}

void Backend::enter_thread() {
  if (driver_->isolate_thread() != success) driver_->last_error();
}

std::unique_ptr<detail::Current> Backend::make_current() { return std::make_unique<Guard>(*this); }

Guard::Guard(Backend& backend) : driver_(backend.driver()) {
  if (driver_.get_device(&before_) != success) {
    driver_.last_error();
    before_ = -1;
  }
  if (before_ == backend.index()) return;
  changed_ = driver_.set_device(backend.index()) == success;
  if (!changed_) driver_.last_error();
}

Guard::~Guard() {
  if (changed_ && before_ >= 0 && driver_.set_device(before_) != success) driver_.last_error();
}

EventOwner::EventOwner(std::shared_ptr<Backend> backend, bool timing, bool blocking)
    : backend_(std::move(backend)) {
  backend_->check_alive();
  const Guard guard(*backend_);
  backend_->check_memory(backend_->driver().event_create(&handle_, timing, blocking),
                         "creating an event", "event resources of " + backend_->name(), 0);
  backend_->count_allocation();
}

Status EventOwner::poll() const {
  Driver& driver = backend_->driver();
  detail::Pauses pauses;
  Status status = success;
  while ((status = driver.event_query(handle_)) == not_ready) {
    driver.last_error();  // "not ready" must not look like the caller's failure
    pauses.next();
  }
  if (status == success) return success;
  // A look that failed says nothing about the work, which must be over when this returns.
  const Status waited = driver.event_synchronize(handle_);
  return waited == success ? status : waited;
}

EventOwner::~EventOwner() {
  const Guard guard(*backend_);
  if (backend_->driver().event_destroy(handle_) != success) backend_->driver().last_error();
}

}  // namespace ps::cuda
