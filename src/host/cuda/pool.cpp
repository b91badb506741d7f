#include "host/cuda/pool.h"

#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/units.h"

namespace ps::cuda {

Pool::Pool(std::shared_ptr<Backend> backend, const PoolOptions& options)
    : backend_(std::move(backend)), options_(options) {
  backend_->check_alive();
  if (!backend_->properties().memory_pools) {
    throw Unsupported(backend_->name() +
                      " has no stream-ordered memory; use ps::DeviceBuffer outside the loop");
  }
  const Guard guard(*backend_);
  Driver& driver = backend_->driver();
  backend_->check_memory(driver.pool_create(&handle_, backend_->index(), options.limit),
                         "creating a memory pool", "device memory of " + backend_->name(), 0);
  try {
    backend_->check(driver.pool_set_threshold(handle_, options.release_threshold),
                    "setting a pool's release threshold");
  } catch (...) {
    if (driver.pool_destroy(handle_) != success) driver.last_error();
    throw;
  }
  backend_->count_allocation();
}

Pool::~Pool() {
  const Guard guard(*backend_);
  if (backend_->driver().pool_destroy(handle_) != success) backend_->driver().last_error();
}

void* Pool::allocate(std::size_t bytes, detail::StreamImpl& stream) {
  backend_->check_alive();
  const Guard guard(*backend_);
  void* data = nullptr;
  const Status status = backend_->driver().pool_alloc(&data, bytes, handle_, stream.native());
  if (status == memory_allocation) ++failures_;
  backend_->check_memory(
      status, "allocating from a pool", "pool memory of " + backend_->name(), bytes,
      options_.limit == 0 ? "" : "the pool's limit is " + format_bytes(options_.limit));
  ++allocations_;
  return data;
}

void Pool::free(void* data, std::size_t /*bytes*/, detail::StreamImpl& stream) noexcept {
  const Guard guard(*backend_);
  if (backend_->driver().pool_free(data, stream.native()) != success) {
    backend_->driver().last_error();
  }
}

void Pool::trim(std::size_t keep) {
  backend_->check_alive();
  backend_->check(backend_->driver().pool_trim(handle_, keep), "trimming a pool");
}

PoolStatistics Pool::statistics() {
  backend_->check_alive();
  PoolUse use;
  backend_->check(backend_->driver().pool_use(handle_, &use), "reading a pool's statistics");
  return {.in_use = use.in_use,
          .in_use_high = use.in_use_high,
          .reserved = use.reserved,
          .reserved_high = use.reserved_high,
          .allocations = allocations_.load(),
          .failures = failures_.load()};
}

}  // namespace ps::cuda
