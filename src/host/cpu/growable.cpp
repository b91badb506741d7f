#include "host/cpu/growable.h"

#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps::cpu {

Growable::Growable(std::shared_ptr<detail::Backend> backend, std::size_t capacity)
    : backend_(std::move(backend)),
      page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
      capacity_(align_up(capacity, page_, "capacity")) {
  void* range =
      mmap(nullptr, capacity_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) throw OutOfMemory("addresses", capacity_);
  data_ = static_cast<std::byte*>(range);
}

Growable::~Growable() { munmap(data_, capacity_); }

void Growable::map(std::size_t bytes) {
  const std::size_t wanted = align_up(bytes, page_, "bytes");
  if (wanted <= mapped_) return;
  if (mprotect(data_ + mapped_, wanted - mapped_, PROT_READ | PROT_WRITE) != 0) {
    throw OutOfMemory("host memory", wanted - mapped_);
  }
  mapped_ = wanted;
}

}  // namespace ps::cpu
