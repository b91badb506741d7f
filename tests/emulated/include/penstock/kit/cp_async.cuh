// cp.async for emulated kernels: a copy is made when its thread waits for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "emulated/block.h"

namespace ps::kit {

template <unsigned bytes>
void cp_async(void* shared, const void* global, unsigned valid = bytes) {
  const auto misaligned = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % bytes != 0;
  };
  if (misaligned(shared) || misaligned(global)) {
    std::fprintf(stderr, "cp_async of %u bytes: misaligned, to %p from %p\n", bytes, shared,
                 global);
    std::abort();
  }
  emulated::Block::current().fiber().copies.push_back({shared, global, bytes, valid});
}

inline void cp_async_commit() {
  emulated::Fiber& fiber = emulated::Block::current().fiber();
  fiber.groups.push_back(std::exchange(fiber.copies, {}));
}

template <unsigned pending>
void cp_async_wait() {
  auto& groups = emulated::Block::current().fiber().groups;
  for (; groups.size() > pending; groups.pop_front()) {
    for (const emulated::PendingCopy& each : groups.front()) {
      const unsigned valid = std::min(each.valid, each.bytes);
      if (valid > 0) std::memcpy(each.to, each.from, valid);
      std::memset(static_cast<std::byte*>(each.to) + valid, 0, each.bytes - valid);
    }
  }
}

}  // namespace ps::kit
