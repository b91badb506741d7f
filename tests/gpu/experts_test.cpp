// Experts that are streamed to a real GPU: the bits of moe() with all weights on the GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gpu/copies.h"
#include "gpu/expert_calls.h"
#include "gpu/gpu_test.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/cuda.h"
#include "penstock/measure/experts.h"
#include "penstock/outofcore/experts.h"
#include "support/expert_steps.h"
#include "support/temporary_directory.h"

namespace ps::test {
namespace {

class StreamedExpertsGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (gpu.kind() != DeviceKind::cuda) GTEST_SKIP() << "needs a GPU";
    stream.emplace(gpu);
    pool.emplace(gpu);
  }

  // Calls of this many tokens, layer by layer, several times: streamed and resident. With
  // `host_slots`, the experts are on a disk.
  void expect_the_bits_of_moe(const ExpertShape& shape, std::size_t slots,
                              const std::vector<std::int64_t>& tokens, MoeKernel kernel,
                              double zipf, std::uint32_t seed, std::size_t host_slots = 0) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", slots " + std::to_string(slots));
    std::mt19937 random(seed);
    const Weights weights(gpu, shape, *stream, random);
    const TemporaryDirectory directory;
    std::optional<DiskExpertStore> disk;
    if (host_slots > 0) {
      pack(weights.store, directory.path() / "experts");
      disk.emplace(gpu, directory.path() / "experts",
                   DiskExpertStoreOptions{.host_bytes = host_slots * weights.store.block_bytes()});
    }
    StreamedExperts experts(
        {.store = disk ? nullptr : &weights.store,
         .disk = disk ? &*disk : nullptr,
         .device = gpu,
         .device_bytes = bytes_for(shape, slots),
         .prefetch = seed % 2 == 0 ? ExpertPrefetch::previous : ExpertPrefetch::none});
    EXPECT_EQ(experts.slots(),
              std::min(slots, static_cast<std::size_t>(shape.layers * shape.experts)));
    for (const std::int64_t count : tokens) {
      std::vector<LayerCall> calls;
      std::vector<std::vector<std::uint8_t>> wanted;
      for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
        LayerCall& call = calls.emplace_back(gpu, shape, count, 4, zipf, *stream, random);
        call.options.pool = &*pool;
        call.options.kernel = kernel;
        call.poison_out();
        moe(weights.resident(layer, call.options), *stream);
        wanted.push_back(call.out());
      }
      for (int round = 0; round < 2; ++round) {
        for (const LayerCall& call : calls) call.poison_out();
        for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
          experts.forward(layer, calls[static_cast<std::size_t>(layer)].options, *stream);
        }
        experts.synchronize();
        for (std::size_t layer = 0; layer < calls.size(); ++layer) {
          EXPECT_EQ(calls[layer].out(), wanted[layer])
              << count << " tokens, layer " << layer << ", round " << round;
        }
      }
    }
    EXPECT_EQ(experts.statistics().failed_calls, 0U);
  }

  // The same calls from plain and from compressed experts, and moe().
  void expect_the_bits_of_plain_experts(const ExpertShape& shape, std::size_t slots,
                                        bool random_bits, std::uint32_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", slots " + std::to_string(slots));
    std::mt19937 random(seed);
    const Weights weights(gpu, shape, *stream, random, random_bits);
    const auto store = compressed_copy(gpu, weights.store);
    const auto prefetch = seed % 2 == 0 ? ExpertPrefetch::previous : ExpertPrefetch::none;
    StreamedExperts plain({.store = &weights.store,
                           .device = gpu,
                           .device_bytes = bytes_for(shape, slots),
                           .prefetch = prefetch});
    StreamedExperts compressed({.compressed = store.get(),
                                .device = gpu,
                                .device_bytes = bytes_for_compressed(shape, slots),
                                .prefetch = prefetch});
    EXPECT_EQ(compressed.slots(), plain.slots());
    EXPECT_LE(compressed.device_bytes(), bytes_for_compressed(shape, slots));
    for (const std::int64_t tokens : {1, 3, 64, 600}) {
      for (int round = 0; round < 2; ++round) {
        std::vector<LayerCall> calls;
        std::vector<std::vector<std::uint8_t>> wanted;
        for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
          LayerCall& call = calls.emplace_back(gpu, shape, tokens, 4, 1, *stream, random);
          call.options.pool = &*pool;
          call.poison_out();
          plain.forward(layer, call.options, *stream);
          wanted.push_back(call.out());
          call.poison_out();
          moe(weights.resident(layer, call.options), *stream);
          EXPECT_EQ(call.out(), wanted.back());
          call.poison_out();
        }
        for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
          compressed.forward(layer, calls[static_cast<std::size_t>(layer)].options, *stream);
        }
        compressed.synchronize();
        for (std::size_t layer = 0; layer < calls.size(); ++layer) {
          EXPECT_EQ(calls[layer].out(), wanted[layer])
              << tokens << " tokens, layer " << layer << ", round " << round;
        }
      }
    }
    const ExpertStatistics counts = compressed.statistics();
    EXPECT_EQ(counts.failed_calls, 0U);
    EXPECT_GT(counts.bytes, 0U);
    const std::uint64_t uncompressed =
        (counts.misses + counts.prefetched) * weights.store.block_bytes();
    if (!random_bits && shape.width > 64) {
      EXPECT_LT(counts.bytes, uncompressed * 3 / 4);
    }
  }

  std::optional<Stream> stream;
  std::optional<Pool> pool;
};

constexpr ExpertShape usual{.layers = 3, .experts = 32, .hidden = 256, .width = 128};

TEST_F(StreamedExpertsGpu, GiveTheBitsOfMoe) {
  std::uint32_t seed = 1;
  for (const std::size_t slots :
       {least_slots(usual), std::size_t{9}, std::size_t{32}, std::size_t{50}, std::size_t{96}}) {
    expect_the_bits_of_moe(usual, slots, {1, 3, 64, 100, 600}, MoeKernel::best, 1, seed++);
  }
}

TEST_F(StreamedExpertsGpu, WithEveryKernel) {
  const bool hopper = gpu.capabilities().compute_major == 9;
  for (const MoeKernel kernel : {MoeKernel::portable, MoeKernel::large, MoeKernel::decode}) {
    if (!hopper && kernel != MoeKernel::portable) continue;
    expect_the_bits_of_moe(usual, 20, {2, 300}, kernel, 0.5, 7);
  }
}

TEST_F(StreamedExpertsGpu, WithEveryLayoutAndType) {
  std::uint32_t seed = 1;
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    for (const bool transposed : {false, true}) {
      ExpertShape shape = usual;
      shape.dtype = type;
      shape.transposed = transposed;
      shape.layout = transposed ? GateUpLayout::interleaved : GateUpLayout::concatenated;
      shape.gate_up_bias = shape.down_bias = transposed;
      expect_the_bits_of_moe(shape, 24, {1, 200}, MoeKernel::best, 1, seed++);
    }
  }
}

TEST_F(StreamedExpertsGpu, FromCompressedExperts) {
  std::uint32_t seed = 21;
  for (const ExpertShape& shape :
       {usual,
        ExpertShape{.layers = 2, .experts = 7, .hidden = 200, .width = 72, .down_bias = true},
        ExpertShape{.layers = 2,
                    .experts = 33,
                    .hidden = 264,
                    .width = 8,
                    .layout = GateUpLayout::interleaved,
                    .transposed = true,
                    .gate_up_bias = true},
        ExpertShape{.layers = 1, .experts = 6, .hidden = 1032, .width = 520}}) {
    for (const std::size_t slots : {least_slots(shape), least_slots(shape) + 5, std::size_t{96}}) {
      for (const bool random_bits : {false, true}) {
        expect_the_bits_of_plain_experts(shape, slots, random_bits, seed++);
      }
    }
  }
}

// Calls on two streams that nothing orders.
TEST_F(StreamedExpertsGpu, FromCompressedExpertsOnTwoStreams) {
  std::mt19937 random(5);
  const Weights weights(gpu, usual, *stream, random);
  const auto compressed = compressed_copy(gpu, weights.store);
  StreamedExperts experts({.compressed = compressed.get(),
                           .device = gpu,
                           .device_bytes = bytes_for_compressed(usual, 12)});
  const CallersStream other;
  const Stream streams[] = {*stream, borrow(gpu, other.get())};
  std::vector<LayerCall> calls;
  std::vector<std::vector<std::uint8_t>> wanted;
  for (std::int64_t i = 0; i < 24; ++i) {
    LayerCall& call = calls.emplace_back(gpu, usual, 1 + 20 * (i % 12), 4, 1, *stream, random);
    call.options.pool = &*pool;
    moe(weights.resident(i % 3, call.options), *stream);
    wanted.push_back(call.out());
    call.poison_out();
  }
  stream->synchronize();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    experts.forward(static_cast<std::int64_t>(i % 3), calls[i].options, streams[i % 2]);
  }
  experts.synchronize();
  for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i].out(), wanted[i]) << i;
}

// The size of real layers, more slots than moe() took once, and a cache that is larger than a
// layer.
TEST_F(StreamedExpertsGpu, OfManySmallExperts) {
  const ExpertShape shape{.layers = 12, .experts = 128, .hidden = 128, .width = 64};
  expect_the_bits_of_moe(shape, 1400, {4, 64}, MoeKernel::best, 1, 3);
}

TEST_F(StreamedExpertsGpu, FromADisk) {
  std::uint32_t seed = 11;
  for (const std::size_t host_slots : {2, 7, 96}) {
    for (const std::size_t slots : {least_slots(usual), std::size_t{20}, std::size_t{96}}) {
      expect_the_bits_of_moe(usual, slots, {1, 64, 600}, MoeKernel::best, 1, seed++, host_slots);
    }
  }
}

// Loading and computing experts by hand, in a pipeline and by StreamedExperts: the measurement
// throws if the results differ.
TEST_F(StreamedExpertsGpu, AreMeasured) {
  const TemporaryDirectory directory;
  for (const ExpertsFrom from : {ExpertsFrom::memory, ExpertsFrom::disk}) {
    for (const std::size_t streams : {1, 2, 4}) {
      SCOPED_TRACE(std::string(name(from)) + ", streams " + std::to_string(streams));
      ExpertOverlapOptions options{.device = gpu,
                                   .shape = usual,
                                   .choices = 4,
                                   .sequence = 300,
                                   .from = from,
                                   .directory = directory.path(),
                                   .streams = streams,
                                   .cache = streams == 4 ? 20U : 0U,
                                   .repeats = 1};
      options.sweep_depths = {1, 8};
      options.decode_steps = 4;
      options.rounding = streams == 1 ? 16 : 0;
      const auto r = measure_expert_overlap(options);
      EXPECT_TRUE(r->streamed_seconds) << r->why_not_streamed;
      EXPECT_TRUE(r->decode) << r->why_no_decode;
      EXPECT_EQ(r->loaded, r->needed - r->cache);
      EXPECT_GT(r->pipelined.upload, 0);
      EXPECT_EQ(r->traced_by, "events");
      EXPECT_TRUE(directory.empty());
    }
  }
}

// Calls on two streams that nothing orders share the slots.
TEST_F(StreamedExpertsGpu, OnTwoStreams) {
  std::mt19937 random(5);
  const Weights weights(gpu, usual, *stream, random);
  StreamedExperts experts(
      {.store = &weights.store, .device = gpu, .device_bytes = bytes_for(usual, 12)});
  const CallersStream other;
  const Stream streams[] = {*stream, borrow(gpu, other.get())};
  std::vector<LayerCall> calls;
  std::vector<std::vector<std::uint8_t>> wanted;
  for (std::int64_t i = 0; i < 12; ++i) {
    LayerCall& call = calls.emplace_back(gpu, usual, 1 + 3 * i, 4, 1, *stream, random);
    call.options.pool = &*pool;
    moe(weights.resident(i % 3, call.options), *stream);
    wanted.push_back(call.out());
    call.poison_out();
  }
  stream->synchronize();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    experts.forward(static_cast<std::int64_t>(i % 3), calls[i].options, streams[i % 2]);
  }
  experts.synchronize();
  for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i].out(), wanted[i]) << i;
}

TEST_F(StreamedExpertsGpu, PrefetchWhatIdsOnTheGpuSay) {
  std::mt19937 random(6);
  const Weights weights(gpu, usual, *stream, random);
  StreamedExperts experts(
      {.store = &weights.store, .device = gpu, .device_bytes = bytes_for(usual, 64)});
  LayerCall call(gpu, usual, 2, 4, 0, *stream, random);
  call.options.pool = &*pool;
  experts.prefetch(1, call.options.ids, *stream);
  while (experts.statistics().prefetched == 0) std::this_thread::yield();
  experts.forward(1, call.options, *stream);
  experts.synchronize();
  const ExpertStatistics counts = experts.statistics();
  EXPECT_EQ(counts.needed, counts.hits + counts.late + counts.misses);
  EXPECT_GT(counts.prefetched, 0U);
  EXPECT_LE(counts.prefetched, counts.needed);
}

TEST_F(StreamedExpertsGpu, ACaptureIsRefused) {
  std::mt19937 random(8);
  const Weights weights(gpu, usual, *stream, random);
  StreamedExperts experts(
      {.store = &weights.store, .device = gpu, .device_bytes = bytes_for(usual, 16)});
  LayerCall call(gpu, usual, 2, 4, 0, *stream, random);
  call.options.pool = &*pool;
  const CallersStream captured;
  ASSERT_EQ(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  try {
    experts.forward(0, call.options, borrow(gpu, captured.get()));
    ADD_FAILURE() << "a capture must be refused";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("StreamedExperts::forward"), std::string::npos);
  }
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(captured.get(), &graph), cudaSuccess);
  if (graph != nullptr) cudaGraphDestroy(graph);
  experts.forward(0, call.options, *stream);
  experts.synchronize();
}

// In a process of its own, because CUDA loads a kernel when it is first launched, and may wait for
// the device to do so. The stream waits for copies then.
TEST_F(StreamedExpertsGpu, KernelsNeedNotBeLoaded) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto first_calls = [&] {
    std::mt19937 random(11);
    const Weights weights(gpu, usual, *stream, random);
    StreamedExperts experts(
        {.store = &weights.store, .device = gpu, .device_bytes = bytes_for(usual, 8)});
    for (const std::int64_t tokens : {1, 30, 600}) {
      LayerCall call(gpu, usual, tokens, 4, 0, *stream, random);
      call.options.pool = &*pool;
      for (std::int64_t layer = 0; layer < 3; ++layer) {
        experts.forward(layer, call.options, *stream);
      }
      experts.synchronize();
    }
    std::quick_exit(experts.statistics().calls == 9 ? 0 : 1);
  };
  EXPECT_EXIT(first_calls(), testing::ExitedWithCode(0), "");
}

// The same for the kernel that decompresses.
TEST_F(StreamedExpertsGpu, TheKernelThatDecompressesNeedNotBeLoaded) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto first_calls = [&] {
    std::mt19937 random(11);
    const Weights weights(gpu, usual, *stream, random);
    const auto compressed = compressed_copy(gpu, weights.store);
    StreamedExperts experts({.compressed = compressed.get(),
                             .device = gpu,
                             .device_bytes = bytes_for_compressed(usual, 8)});
    for (const std::int64_t tokens : {1, 30, 600}) {
      LayerCall call(gpu, usual, tokens, 4, 0, *stream, random);
      call.options.pool = &*pool;
      for (std::int64_t layer = 0; layer < 3; ++layer) {
        experts.forward(layer, call.options, *stream);
      }
      experts.synchronize();
    }
    std::quick_exit(experts.statistics().calls == 9 ? 0 : 1);
  };
  EXPECT_EXIT(first_calls(), testing::ExitedWithCode(0), "");
}

TEST_F(StreamedExpertsGpu, ClosingEndsCallsThatAreInFlight) {
  std::mt19937 random(9);
  const Weights weights(gpu, usual, *stream, random);
  StreamedExperts experts(
      {.store = &weights.store, .device = gpu, .device_bytes = bytes_for(usual, 8)});
  LayerCall call(gpu, usual, 600, 4, 0, *stream, random);
  call.options.pool = &*pool;
  for (int i = 0; i < 20; ++i) experts.forward(i % 3, call.options, *stream);
  experts.close();
  stream->synchronize();
  EXPECT_THROW(experts.forward(0, call.options, *stream), std::runtime_error);
}

}  // namespace
}  // namespace ps::test
