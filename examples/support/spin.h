// A kernel that keeps its blocks resident for a given time and does nothing else: it shows which
// kernels run at once. On the CPU a thread burns that much CPU time.
#pragma once

#include <cstddef>

#include "penstock/host/stream.h"

namespace ladder {

struct SpinOptions {
  double seconds = 0;
  int blocks = 1;
  std::size_t shared_bytes = 0;  // of each block
};

void spin(const SpinOptions& options, const ps::Stream& stream);

// The most shared memory that one block may ask for; 0 on the CPU.
std::size_t most_shared_bytes(const ps::Device& device);

namespace detail {
void spin_cuda(const SpinOptions& options, const ps::Stream& stream);
std::size_t most_shared_bytes_cuda(const ps::Device& device);
}  // namespace detail

}  // namespace ladder
