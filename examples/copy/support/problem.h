// The copy ladder's problem: the arrays, the limits, and how a kernel's row comes about.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "copy/support/work.h"
#include "penstock/host/buffer.h"
#include "support/context.h"
#include "support/interleaved.h"

namespace ladder::copy {

class Problem {
 public:
  // Random input of context.bytes(), and as much output; both several times where they would fit
  // into the L2 cache. Measures the limits.
  explicit Problem(Context& context);

  const ps::Stream& stream() const { return stream_; }
  std::size_t count() const { return count_; }
  int turns() const { return turns_; }

  // The arrays of a turn, or their first `most` elements.
  Options options(Formula formula, int rounds, std::size_t turn, std::size_t most = SIZE_MAX) const;

  // Runs the kernel on a poisoned output and compares every element with plain loads' result, which
  // the constructor compared with the host's. Throws std::runtime_error.
  void check(const Kernel& kernel, int rounds);

  // A launch of the kernel, for interleaved_medians().
  Enqueue run(const Kernel& kernel, int rounds) const;
  // The same bytes by cudaMemcpy.
  Enqueue memcpy() const;

  int rounds(Intensity intensity) const;

  // The largest of what the bytes and the multiply-adds need alone.
  double floor_seconds(Formula formula, int rounds) const;
  double copy_seconds() const { return copy_seconds_; }  // of cudaMemcpy
  double multiply_adds_per_second() const { return multiply_adds_per_second_; }

  // Checks and times a rung's kernels, each at its intensities.
  std::vector<Row> rows(Context& context, const std::vector<Kernel>& kernels);

 private:
  float* input(std::size_t turn) const;
  float* output(std::size_t turn) const;
  void check_reference();
  void tell(Context& context) const;

  ps::Stream stream_;
  std::stop_token stop_;
  std::size_t count_, copies_;
  int turns_;
  ps::DeviceBuffer in_, out_, expected_, coefficients_;
  double copy_seconds_ = 0, multiply_adds_per_second_ = 0;
  int balanced_rounds_ = 0;
  Formula expected_formula_{};
  int expected_rounds_ = -1;  // nothing is there yet
};

}  // namespace ladder::copy
