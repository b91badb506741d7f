// A cache of random keys and values on the GPU with queries for it, and a check of the result.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "attention/support/reference.h"
#include "decode/support/placement.h"
#include "decode/support/problem.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"

namespace ladder::decode {

// 1 / sqrt(128)
constexpr float usual_scale = 0.08838834764831845F;

class Tensors {
 public:
  // Elements are uniform in [-1, 1]. Rows that hold no key are NaN. Throws InvalidArgument as
  // place() does.
  Tensors(const ps::Stream& stream, const Shape& shape);

  const Shape& shape() const { return shape_; }
  // With a larger scale few keys have most of the probability.
  Problem problem(float scale = usual_scale) const;

  // Fills the result, what surrounds it, and the memory of partial results with NaN.
  void poison() const;

  // Compares the result with sums in double precision: all heads of all sequences where there are
  // few keys, else some; and looks at every element for NaN. Returns the number of elements that
  // were compared. Throws std::runtime_error, naming the element, when one is off, not written, or
  // written beyond the end. Synchronises.
  std::size_t check(const Problem& p) const;

  // All elements. Synchronises.
  std::vector<float> result() const;

 private:
  struct Row {
    unsigned sequence, head_q;
    attention::ReferenceRow reference;
  };
  Problem without_workspace() const;
  const std::vector<Row>& references(float scale) const;
  // The keys or values of a sequence, zeros where there is no page.
  std::vector<float> gather(const ps::DeviceBuffer& from, unsigned sequence, unsigned head_k) const;
  std::size_t results() const;

  ps::Stream stream_;
  Shape shape_;
  Placement placement_;
  ps::DeviceBuffer q_, k_, v_, out_, lengths_, starts_, pages_, stats_, sums_, workspace_;
  mutable std::map<float, std::vector<Row>> references_;  // by scale, made at first use
};

}  // namespace ladder::decode
