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
#include "ops/moe/arguments.h"
#include "penstock/ops/iterate.h"
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

  // Runs the call once more; returns the bytes of `out`, which was filled with poison before.
  std::vector<std::uint8_t> run_again() const {
    poison_out();
    moe(options_, stream_);
    return out_bytes();
  }

  // Fills `out`, or `out` and the workspace, with poison.
  void poison_out() const { fill(out(), poison, stream_); }
  void poison_results() const {
    poison_out();
    fill(options_.workspace, poison, stream_);
  }

  // The bytes of `out` now.
  std::vector<std::uint8_t> out_bytes() const {
    return test::fetch<std::uint8_t>(out(), 0, out().bytes, stream_);
  }

  // Overwrites the ids of the call.
  void send_ids(const std::vector<std::int64_t>& ids) const {
    if (options_.ids.dtype() == DType::i64) return send(options_.ids.memory(), 0, ids, stream_);
    send(options_.ids.memory(), 0, std::vector<std::int32_t>(ids.begin(), ids.end()), stream_);
  }

  // Which kernel, `large` or `decode`, computed the products of the last call, which must have had
  // experts with rows: the other one had no work in its tables.
  MoeKernel products() const {
    const detail::MoeWork work = mixture::sized(options_);
    const auto counters =
        test::fetch<std::uint32_t>(options_.workspace, work.space.counters, 5, stream_);
    const bool large = counters[0] > 0 && counters[1] > 0, decode = counters[4] > 0;
    EXPECT_NE(large, decode) << "items of up and of down: " << counters[0] << " and " << counters[1]
                             << ", passes: " << counters[4];
    return decode ? MoeKernel::decode : MoeKernel::large;
  }

  // Whether only the workspace itself was written.
  testing::AssertionResult surroundings_untouched() const {
    const auto before = test::fetch<std::uint8_t>(memory_.view(), 0, moe_margin, stream_);
    const auto behind =
        test::fetch<std::uint8_t>(memory_.view(), moe_margin + bytes_, moe_margin, stream_);
    const testing::AssertionResult first = all_are(before, poison);
    return first ? all_are(behind, poison) : first;
  }

 private:
  MemoryView out() const {
    const TensorView& view = options_.out;
    return {static_cast<std::byte*>(view.data()), view.bytes(), memory_.view().place};
  }

  MoeArrays& arrays_;
  Stream stream_;
  Copies copies_;
  MoeOptions options_;
  std::size_t bytes_ = 0;
  DeviceBuffer memory_;
};

// Kernels of another stream, which take multiprocessors from those that are tested.
class OtherWork {
 public:
  explicit OtherWork(const Device& gpu) : stream_(gpu), memory_(gpu, bytes) {
    fill(memory_.view(), 0, stream_);
  }

  // Enqueues some tens of microseconds of work.
  void enqueue() {
    const TensorView data = floats(memory_.view(), 0, bytes / sizeof(float));
    iterate({.in = data, .out = data, .rounds = 64}, stream_);
  }

 private:
  static constexpr std::size_t bytes = std::size_t{1} << 25;

  Stream stream_;
  DeviceBuffer memory_;
};

inline std::vector<std::uint8_t> bits_of(const MoeArrays& arrays) { return arrays.out().bytes(); }

// Checks that hold for every kernel.
class MoeCallsGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) stream.emplace(gpu);
  }

  // moe() of these numbers; returns what is wrong with the result.
  std::string run(const MoeNumbers& numbers, const MoeStorage& storage, MoeKernel kernel) {
    MoeArrays arrays(numbers, storage);
    OnGpu there(arrays, gpu, *stream);
    there.options().kernel = kernel;
    moe(there.options(), *stream);
    there.fetch();
    if (!arrays.out().surroundings_untouched()) return "bytes around out were written";
    if (!there.surroundings_untouched()) return "bytes around the workspace were written";
    return wrong(arrays.out(), expected(numbers, arrays.present()));
  }

  // The bits of the result, which must be right.
  std::vector<std::uint8_t> bits(const MoeNumbers& numbers, const MoeStorage& storage,
                                 MoeKernel kernel);

  // Experts that are computed in several calls, in random order and in slots that are used again,
  // give the bits of one call.
  void expect_parts_are_the_whole(const MoeNumbers& numbers, MoeStorage storage, MoeKernel kernel,
                                  std::mt19937& random);

  // A call that is captured and replayed gives the bits of one that is not.
  void expect_replays(const MoeNumbers& numbers, MoeKernel kernel);

  // A token alone has the bits that it has among others, if the call is `batch_invariant`.
  void expect_tokens_are_independent(MoeKernel kernel);

  // A token that is NaN does not touch the others of its experts, nor do rows of shared memory that
  // were left by other items.
  void expect_nan_stays_in_its_token(DType type, const MoeStorage& storage, MoeKernel kernel);

  std::optional<Stream> stream;
};

// Tests of the kernels for compute capability 9.0.
class MoeGpu : public MoeCallsGpu {
 protected:
  void SetUp() override {
    MoeCallsGpu::SetUp();
    if (IsSkipped()) return;
    if (gpu.capabilities().compute_major != 9) GTEST_SKIP() << "needs compute capability 9.0";
  }

  std::string run(const MoeNumbers& numbers, const MoeStorage& storage = {},
                  MoeKernel kernel = MoeKernel::large) {
    return MoeCallsGpu::run(numbers, storage, kernel);
  }
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
