// Random matrices on the GPU, in as many sets as it takes to be out of its cache by the time one is
// used again, and a check of the product.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gemm/support/problem.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"

namespace gemm {

struct Size {
  unsigned m = 0, n = 0, k = 0;

  double flops() const { return 2.0 * m * n * k; }
};

struct Error {
  double largest = 0;  // |c - reference| over what rounding explains, so 1 is the tolerance
  std::size_t checked = 0;
};

class Matrices {
 public:
  // Elements are uniform in [-1, 1]. `sets` of 0: as many as make three times the L2 cache, two at
  // least.
  // `offset` elements before each matrix spoil its alignment.
  Matrices(const ps::Stream& stream, const Size& size, std::size_t sets = 0,
           std::size_t offset = 0);

  const Size& size() const { return size_; }
  std::size_t sets() const { return problems_.size(); }
  const Problem& problem(std::size_t turn) const { return problems_[turn % problems_.size()]; }

  // Fills the set's C, and what surrounds it, with NaN.
  void poison(std::size_t set) const;

  // Compares C with sums in double precision: all elements where there are few, else those where
  // some rows and columns cross, edges and borders of tiles among them; and looks at every element
  // for NaN. Throws std::runtime_error, naming the element, when one is off, not written, or
  // written beyond the end. Synchronises.
  Error check(std::size_t set) const;

 private:
  struct Reference;
  const Reference& reference(std::size_t set) const;  // made at first use

  ps::Stream stream_;
  Size size_;
  std::vector<ps::DeviceBuffer> memory_;
  std::vector<Problem> problems_;
  mutable std::vector<std::shared_ptr<const Reference>> references_;
};

}  // namespace gemm
