#include "host/cpu/address_range.h"

#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps::cpu {

AddressRange::AddressRange(std::shared_ptr<detail::Backend> backend, std::size_t capacity)
    : backend_(std::move(backend)),
      page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
      capacity_(align_up(capacity, page_, "capacity")) {
  void* range =
      mmap(nullptr, capacity_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) throw OutOfMemory("addresses", capacity_);
  data_ = static_cast<std::byte*>(range);
}

AddressRange::~AddressRange() { munmap(data_, capacity_); }

void AddressRange::map(std::size_t offset, std::size_t bytes) {
  if (mprotect(data_ + offset, bytes, PROT_READ | PROT_WRITE) != 0) {
    throw OutOfMemory("host memory", bytes);
  }
}

void AddressRange::unmap(std::size_t offset, std::size_t bytes) noexcept {
  madvise(data_ + offset, bytes, MADV_DONTNEED);
  mprotect(data_ + offset, bytes, PROT_NONE);
}

}  // namespace ps::cpu
