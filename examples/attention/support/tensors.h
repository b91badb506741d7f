// Random Q, K and V on the GPU, and a check of the result.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "attention/support/problem.h"
#include "attention/support/reference.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"

namespace ladder::attention {

struct Shape {
  unsigned heads = 0, rows = 0;

  // Of both products. Causal attention counts half.
  double flops(bool causal) const { return (causal ? 2.0 : 4.0) * heads * rows * rows * dim; }
};

// 1 / sqrt(128)
constexpr float usual_scale = 0.08838834764831845F;

class Tensors {
 public:
  // Elements are bf16 or f16, uniform in [-1, 1].
  Tensors(const ps::Stream& stream, const Shape& shape, ps::DType type);

  const Shape& shape() const { return shape_; }
  ps::DType type() const { return type_; }
  // With a larger scale few keys have most of the probability.
  Problem problem(bool causal, float scale = usual_scale) const;

  // Fills the result, and what surrounds it, with NaN.
  void poison() const;

  // Compares the result with sums in double precision: all rows where there are few, else some of
  // every kind, first, last and at borders of tiles; and looks at every element for NaN. Returns
  // the number of elements that were compared. Throws std::runtime_error, naming the element, when
  // one is off, not written, or written beyond the end. Synchronises.
  std::size_t check(const Problem& p) const;

 private:
  struct Row {
    unsigned head, row;
    ReferenceRow reference;
  };
  const std::vector<Row>& references(const Problem& p) const;
  std::vector<float> download(const void* matrix, std::size_t row, std::size_t rows) const;

  ps::Stream stream_;
  Shape shape_;
  ps::DType type_;
  ps::DeviceBuffer q_, k_, v_, out_, counter_, workspace_;
  // By mask and scale, made at first use.
  mutable std::map<std::pair<bool, float>, std::vector<Row>> references_;
};

}  // namespace ladder::attention
