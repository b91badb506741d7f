// A file read as one would write it by hand: nothing but the system calls.
#pragma once

#include <cstddef>
#include <string>

namespace bench {

struct BareRead {
  int fd = -1;  // open for direct reads
  std::size_t bytes = 0;
  std::size_t block = 0;  // of one read; divides bytes
  std::size_t in_flight = 1;
  std::byte* memory = nullptr;  // in_flight * block, aligned to 4 KiB
};

// All bytes once, each block into the memory of the read that was free; throws std::runtime_error.
void read_by_threads(const BareRead& work);

// False where this build or system has no io_uring.
bool read_by_uring(const BareRead& work);

}  // namespace bench
