// One shape with times of one kind on the GPU, in as many sets as it takes to be out of its cache
// by the time one is used again, and a check of the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"
#include "resample/support/data.h"
#include "resample/support/work.h"
#include "support/interleaved.h"

namespace ladder::resample {

class Case {
 public:
  Case(const ps::Stream& stream, const Shape& shape, Clock clock);

  const std::string& name() const { return name_; }
  ps::DType type() const { return shape_.type; }
  // That any kernel must move.
  std::size_t bytes() const { return bytes_; }

  // Why the kernel's rung leaves this case to another kernel; empty if it does not.
  std::string why_left(const Kernel& kernel) const;

  // Runs the kernel on a poisoned output and compares every element with the CPU's. Throws
  // std::runtime_error.
  void check(const Kernel& kernel) const;

  // A launch of the kernel, for interleaved_medians().
  Enqueue run(const Kernel& kernel) const;
  // cudaMemcpy of the same size: it reads one half of the bytes and writes the other. The size is
  // rounded up to whole pages, which takes less time than a copy of slightly fewer bytes.
  Enqueue memcpy() const;

 private:
  struct Set {
    ps::DeviceBuffer memory;  // values, times, lengths, targets and results
    ps::DeviceBuffer copied;  // target of the cudaMemcpy
  };
  ps::MemoryView part(std::size_t turn, std::size_t number) const;
  Options options(std::size_t turn) const;

  ps::Stream stream_;
  Shape shape_;
  std::string name_;
  std::size_t bytes_ = 0;
  std::size_t part_bytes_[5] = {};
  std::vector<Set> sets_;
  std::vector<std::uint16_t> expected_;  // an f32 has two words
};

}  // namespace ladder::resample
