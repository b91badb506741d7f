// Where the CPU backend gets its memory from; tests put a failing one in its place.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace ps::cpu {

class Heap {
 public:
  Heap() = default;
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  virtual ~Heap() = default;

  // Null when there is none. `bytes` is a multiple of `alignment`.
  virtual void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    return std::aligned_alloc(alignment, bytes);
  }
  virtual void free(void* data) noexcept { std::free(data); }
};

}  // namespace ps::cpu
