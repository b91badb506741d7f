// Reserved addresses and the pages mapped behind them. Addresses without pages fault when touched.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "fake/pool.h"
#include "host/cuda/driver.h"

namespace ps::test {

// Not thread-safe. Each call returns what is wrong, or nothing; `out_of_memory` is the one failure
// that is not a mistake of the caller.
class AddressSpace {
 public:
  explicit AddressSpace(std::size_t granularity) : granularity_(granularity) {}
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  struct Result {
    std::string wrong{};
    bool out_of_memory = false;

    bool ok() const { return wrong.empty() && !out_of_memory; }
  };

  Result reserve(void** address, std::size_t bytes);
  Result free(void* address, std::size_t bytes);
  Result create(cuda::MemoryHandle* memory, std::size_t bytes, int device, Budget& budget);
  Result release(cuda::MemoryHandle memory);
  Result map(void* address, std::size_t bytes, cuda::MemoryHandle memory, int device);
  // Whether unmap() may be called with these; the caller checks the work on them in between.
  Result may_unmap(void* address, std::size_t bytes) const;
  void unmap(void* address);

  std::size_t granularity() const { return granularity_; }
  std::size_t reservations() const { return reservations_.size(); }
  std::size_t memories() const;  // created and not released
  std::size_t mappings() const { return mappings_.size(); }

 private:
  struct Reservation {
    std::size_t bytes = 0;
    void* whole = nullptr;  // what mmap returned, before alignment
    std::size_t whole_bytes = 0;
  };
  struct Physical {
    std::size_t bytes = 0;
    int device = 0;
    bool released = false, mapped = false;
    Budget* budget = nullptr;
  };
  struct Mapping {
    std::size_t bytes = 0;
    cuda::MemoryHandle memory = 0;
  };

  void drop_if_unused(cuda::MemoryHandle memory);
  bool inside_reservation(const std::byte* address, std::size_t bytes) const;
  bool touches_mapping(const std::byte* address, std::size_t bytes) const;

  std::size_t granularity_;
  std::map<std::byte*, Reservation> reservations_;
  std::map<cuda::MemoryHandle, Physical> memories_;
  std::map<std::byte*, Mapping> mappings_;
  cuda::MemoryHandle next_ = 1;
};

}  // namespace ps::test
