// Calls of moe() on a GPU, for the tests of its kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gpu/copies.h"
#include "gpu/gpu_test.h"
#include "penstock/ops/moe.h"
#include "support/moe_arrays.h"

namespace ps::test {

inline constexpr std::size_t moe_margin = 4096;  // bytes of poison around the workspace

// A call on the GPU: copies of its arrays, and a workspace in poison.
class OnGpu {
 public:
  OnGpu(MoeArrays& arrays, const Device& gpu, const Stream& stream)
      : arrays_(arrays), stream_(stream), copies_(gpu, stream) {
    options_ = arrays.options([&](Strided& array) { return copies_.of(array); });
    bytes_ = moe_workspace_bytes(options_);
    memory_ = DeviceBuffer(gpu, bytes_ + 2 * moe_margin);
    fill(memory_.view(), poison, stream);
    options_.workspace = memory_.view().sub(moe_margin, bytes_);
  }

  const MoeOptions& options() const { return options_; }
  MoeOptions& options() { return options_; }

  // Waits, and brings `out` back.
  void fetch() { copies_.fetch(); }

  // Whether only the workspace itself was written.
  testing::AssertionResult surroundings_untouched() const {
    const auto before = test::fetch<std::uint8_t>(memory_.view(), 0, moe_margin, stream_);
    const auto behind =
        test::fetch<std::uint8_t>(memory_.view(), moe_margin + bytes_, moe_margin, stream_);
    const testing::AssertionResult first = all_are(before, poison);
    return first ? all_are(behind, poison) : first;
  }

 private:
  MoeArrays& arrays_;
  Stream stream_;
  Copies copies_;
  MoeOptions options_;
  std::size_t bytes_ = 0;
  DeviceBuffer memory_;
};

inline std::vector<std::uint8_t> bits_of(const MoeArrays& arrays) { return arrays.out().bytes(); }

class MoeGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (gpu.capabilities().compute_major != 9) GTEST_SKIP() << "needs compute capability 9.0";
    stream.emplace(gpu);
  }

  // moe() of these numbers; returns what is wrong with the result.
  std::string run(const MoeNumbers& numbers, const MoeStorage& storage = {},
                  MoeKernel kernel = MoeKernel::best) {
    MoeArrays arrays(numbers, storage);
    OnGpu there(arrays, gpu, *stream);
    there.options().kernel = kernel;
    moe(there.options(), *stream);
    there.fetch();
    if (!arrays.out().surroundings_untouched()) return "bytes around out were written";
    if (!there.surroundings_untouched()) return "bytes around the workspace were written";
    return wrong(arrays.out(), expected(numbers, arrays.present()));
  }

  std::optional<Stream> stream;
};

// Numbers of this shape in which expert e has counts[e] rows, in random order, one choice per
// token.
inline MoeNumbers with_counts(const std::vector<int>& counts, MoeShape shape, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> ids;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    ids.insert(ids.end(), static_cast<std::size_t>(counts[e]), static_cast<std::int64_t>(e));
  }
  std::shuffle(ids.begin(), ids.end(), random);
  shape.tokens = static_cast<std::int64_t>(ids.size());
  shape.choices = 1;
  shape.experts = static_cast<std::int64_t>(counts.size());
  MoeNumbers numbers(shape, random);
  numbers.ids = ids;
  return numbers;
}
inline MoeNumbers with_counts(const std::vector<int>& counts, std::int64_t hidden,
                              std::int64_t width, DType type, std::uint32_t seed) {
  return with_counts(counts, {.hidden = hidden, .width = width, .type = type}, seed);
}

}  // namespace ps::test
