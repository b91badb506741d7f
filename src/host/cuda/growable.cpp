#include "host/cuda/growable.h"

#include <utility>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps::cuda {

Growable::Growable(std::shared_ptr<Backend> backend, std::size_t capacity)
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

Growable::~Growable() {
  const Guard guard(*backend_);
  Driver& driver = backend_->driver();
  for (const Piece& piece : pieces_) {
    driver.memory_unmap(data_ + piece.offset, piece.bytes);
    driver.memory_release(piece.memory);
  }
  driver.address_free(data_, capacity_);
  driver.last_error();
}

void Growable::map(std::size_t bytes) {
  const std::size_t wanted = checked_mul(ceil_div(bytes, page_), page_, "bytes");
  if (wanted <= mapped_) return;
  backend_->check_alive();
  const Guard guard(*backend_);
  Driver& driver = backend_->driver();
  const std::size_t more = wanted - mapped_;
  pieces_.reserve(pieces_.size() + 1);  // nothing may fail once the pages are mapped

  MemoryHandle memory = 0;
  const std::string place = "device memory of " + backend_->name();
  backend_->check_memory(driver.memory_create(&memory, more, backend_->index()), "creating pages",
                         place, more);
  const Status status = driver.memory_map(data_ + mapped_, more, memory, backend_->index());
  if (status != success) {
    driver.memory_release(memory);
    backend_->check_memory(status, "mapping pages", place, more);
  }
  pieces_.push_back({memory, mapped_, more});
  mapped_ = wanted;
  backend_->count_allocation();
}

}  // namespace ps::cuda
