#include "host/cuda/address_range.h"

#include <utility>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps::cuda {

AddressRange::AddressRange(std::shared_ptr<Backend> backend, std::size_t capacity)
    : backend_(std::move(backend)) {
  backend_->check_alive();
  if (!backend_->properties().virtual_memory) {
    throw Unsupported(backend_->name() +
                      " cannot map memory behind reserved addresses; use ps::Pool and copy");
  }
  const Guard guard(*backend_);
  Driver& driver = backend_->driver();
  backend_->check(driver.address_granularity(backend_->index(), &page_),
                  "reading the size of a page");
  capacity_ = checked_mul(ceil_div(capacity, page_), page_, "capacity");
  void* range = nullptr;
  backend_->check_memory(driver.address_reserve(&range, capacity_), "reserving addresses",
                         "addresses of " + backend_->name(), capacity_);
  data_ = static_cast<std::byte*>(range);
  backend_->count_allocation();
}

AddressRange::~AddressRange() {
  const Guard guard(*backend_);
  Driver& driver = backend_->driver();
  for (const auto& [offset, piece] : pieces_) {
    driver.memory_unmap(data_ + offset, piece.bytes);
    driver.memory_release(piece.memory);
  }
  driver.address_free(data_, capacity_);
  driver.last_error();
}

void AddressRange::map(std::size_t offset, std::size_t bytes) {
  backend_->check_alive();
  const Guard guard(*backend_);
  Driver& driver = backend_->driver();
  // Nothing may fail once the pages are mapped.
  const auto place = pieces_.emplace(offset, Piece{.memory = 0, .bytes = bytes}).first;
  const std::string where = "device memory of " + backend_->name();
  try {
    backend_->check_memory(driver.memory_create(&place->second.memory, bytes, backend_->index()),
                           "creating pages", where, bytes);
    const Status status =
        driver.memory_map(data_ + offset, bytes, place->second.memory, backend_->index());
    if (status != success) {
      driver.memory_release(place->second.memory);
      backend_->check_memory(status, "mapping pages", where, bytes);
    }
  } catch (...) {
    pieces_.erase(place);
    throw;
  }
  backend_->count_allocation();
}

void AddressRange::unmap(std::size_t offset, std::size_t bytes) noexcept {
  const auto piece = pieces_.find(offset);
  const Guard guard(*backend_);
  Driver& driver = backend_->driver();
  driver.memory_unmap(data_ + offset, bytes);
  driver.memory_release(piece->second.memory);
  driver.last_error();
  pieces_.erase(piece);
}

}  // namespace ps::cuda
