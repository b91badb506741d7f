// The CPU backend's memory, of which the Nth piece is refused.
#pragma once

#include <atomic>
#include <cstdint>

#include "host/cpu/heap.h"

namespace ps::test {

class FailingHeap final : public cpu::Heap {
 public:
  // The nth allocation from now on fails; 0: none does.
  void fail_at(std::uint64_t n) {
    struck_ = false;
    left_ = n;
  }
  bool struck() const { return struck_; }
  std::int64_t outstanding() const { return outstanding_; }

  void* allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    std::uint64_t left = left_;
    while (left > 0 && !left_.compare_exchange_weak(left, left - 1)) {
    }
    if (left == 1) {
      struck_ = true;
      return nullptr;
    }
    void* data = Heap::allocate(bytes, alignment);
    if (data != nullptr) ++outstanding_;
    return data;
  }

  void free(void* data) noexcept override {
    if (data != nullptr) --outstanding_;
    Heap::free(data);
  }

 private:
  std::atomic<std::uint64_t> left_{0};
  std::atomic<bool> struck_{false};
  std::atomic<std::int64_t> outstanding_{0};
};

}  // namespace ps::test
