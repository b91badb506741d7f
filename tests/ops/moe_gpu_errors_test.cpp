// What moe() refuses on a GPU, a fake one: everything that happens before a kernel is launched.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/ops/moe.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/guarded_memory.h"
#include "support/moe_arrays.h"
#include "support/moe_errors.h"

namespace ps::test {
namespace {

// A call that is right but for what tests spoil. The fake GPU's memory is the host's.
class MoeGpuErrors : public testing::Test {
 protected:
  MoeGpuErrors() {
    options = arrays.options([&](Strided& array) {
      const DeviceBuffer& there =
          buffers.emplace_back(machine->gpu(), array.bytes().size() + GuardedMemory::alignment);
      std::byte* begin = there.view().data;
      begin += -reinterpret_cast<std::uintptr_t>(begin) % GuardedMemory::alignment;
      const MemoryView from{
          reinterpret_cast<std::byte*>(array.bytes().data()), array.bytes().size(), {}};
      machine->driver().allow_pageable(from.data, from.bytes);
      copy({begin, from.bytes, there.view().place}, from, *stream, {.allow_pageable = true});
      stream->synchronize();
      machine->driver().forget_pageable(from.data);
      return array.view_in(reinterpret_cast<std::uint8_t*>(begin), there.view().place);
    });
    options.pool = &*pool;
  }
  ~MoeGpuErrors() override {
    options = {};
    buffers.clear();
    pool.reset();
    stream.reset();
    EXPECT_TRUE(is_clean(machine->driver()));
  }

  std::string named(const std::function<void(MoeOptions&)>& spoil) const {
    MoeOptions bad = options;
    spoil(bad);
    return moe_refusal(bad, *stream).argument;
  }

  std::mt19937 random{1};
  MoeNumbers numbers{{.tokens = 6}, random};
  MoeArrays arrays{numbers, {.slots = {0, 4, 1, 2}, .slot_count = 5, .padding = 8}};
  std::optional<FakeMachine> machine{std::in_place};
  std::optional<Stream> stream{machine->gpu()};
  std::optional<Pool> pool{machine->gpu()};
  std::vector<DeviceBuffer> buffers;
  MoeOptions options;
};

TEST_F(MoeGpuErrors, AlignmentOfRows) {
  EXPECT_EQ(named([](auto& o) { o.x = moved(o.x, 8); }), "x");
  EXPECT_EQ(named([](auto& o) { o.gate_up = moved(o.gate_up, 2); }), "gate_up");
  EXPECT_EQ(named([](auto& o) { o.down = moved(o.down, 4); }), "down");
  EXPECT_EQ(named([](auto& o) { o.out = moved(o.out, 8); }), "out");
  EXPECT_EQ(named([](auto& o) { o.x = changed(o.x, {6, 16}, {20, 1}); }), "x");
  EXPECT_EQ(named([](auto& o) { o.out = changed(o.out, {6, 16}, {20, 1}); }), "out");
  EXPECT_EQ(named([](auto& o) { o.gate_up = changed(o.gate_up, {5, 16, 16}, {260, 16, 1}); }),
            "gate_up");
  EXPECT_EQ(named([](auto& o) { o.down = changed(o.down, {5, 16, 8}, {128, 12, 1}); }), "down");
  EXPECT_EQ(named([](auto& o) { o.gate_up = changed(o.gate_up, {5, 16, 16}, {256, 1, 20}); }),
            "gate_up");
  EXPECT_EQ(named([](auto& o) { o.down = changed(o.down, {5, 16, 8}, {132, 1, 16}); }), "down");
}

TEST_F(MoeGpuErrors, OrderAndReachOfRows) {
  const std::int64_t far = (std::int64_t{1} << 35) / 6 / 8 * 8 + 8;
  EXPECT_EQ(named([](auto& o) { o.x = changed(o.x, {6, 16}, {-24, 1}); }), "x");
  EXPECT_EQ(named([](auto& o) { o.out = changed(o.out, {6, 16}, {-24, 1}); }), "out");
  EXPECT_EQ(named([&](auto& o) { o.x = changed(o.x, {6, 16}, {far, 1}); }), "x");
}

TEST_F(MoeGpuErrors, TypesAndPlaces) {
  for (const Place place : {Place{}, Place{Memory::pinned}, Place{Memory::device, 1}}) {
    EXPECT_EQ(named([&](auto& o) { o.x = at_place(o.x, place); }), "x");
    EXPECT_EQ(named([&](auto& o) { o.slots = at_place(o.slots, place); }), "slots");
    EXPECT_EQ(named([&](auto& o) { o.out = at_place(o.out, place); }), "out");
  }
  GuardedMemory here(moe_workspace_bytes(options));
  EXPECT_EQ(named([&](auto& o) { o.workspace = here.view(); }), "workspace");
  const Pool of_cpu(Device::cpu());
  EXPECT_EQ(named([&](auto& o) { o.pool = &of_cpu; }), "pool");
  EXPECT_EQ(named([](auto& o) { o.pool = nullptr; }), "workspace");
}

TEST_F(MoeGpuErrors, NegativeIdsAreFoundByACheck) {
  auto* ids = static_cast<std::int32_t*>(options.ids.data());
  machine->driver().host_write(ids, 6 * 2 * sizeof(std::int32_t));
  ids[11] = -7;
  options.check = true;
  EXPECT_EQ(moe_refusal(options, *stream).given, "-7 at (t, k) = (5, 1)");
  EXPECT_EQ(pool->statistics().allocations, 0U);
}

TEST_F(MoeGpuErrors, ACheckCannotBeCaptured) {
  options.check = true;
  machine->driver().set_capturing(stream->native(), true);
  EXPECT_THROW(moe(options, *stream), Unsupported);
  machine->driver().set_capturing(stream->native(), false);
}

TEST_F(MoeGpuErrors, AnAllocationThatFailsLeavesNothing) {
  machine->driver().fail_call(1, cuda::memory_allocation, {"pool_alloc"});
  EXPECT_THROW(moe(options, *stream), OutOfMemory);
  EXPECT_EQ(pool->statistics().in_use, 0U);
}

#if !PENSTOCK_WITH_CUDA
TEST_F(MoeGpuErrors, AStepThatFailsLeavesNothing) {
  EXPECT_THROW(moe(options, *stream), Unsupported);
  EXPECT_EQ(pool->statistics().allocations, 1U);
  EXPECT_EQ(pool->statistics().in_use, 0U);
}
#endif

// A fake GPU, and a call of moe() there that its checks stop.
class MoeGpu {
 public:
  // Rows at multiples of 16 bytes in any type.
  MoeGpu(int major, int minor, DType type, const MoeStorage& storage = {.padding = 48})
      : machine_({.adjust =
                      [major, minor](int, cuda::Properties& gpu) {
                        gpu.major = major;
                        gpu.minor = minor;
                      }}),
        numbers_({.type = type}, random_),
        arrays_(numbers_, storage) {}

  // What a call with this kernel throws, and with options changed by `change`. If its checks do not
  // stop it, it gets no workspace, so that nothing is launched.
  std::string refusal(MoeKernel kernel, const std::function<void(MoeOptions&)>& change = {}) {
    MoeOptions options =
        arrays_.options([&](Strided& array) { return array.view(machine_.gpu().place()); });
    const Pool pool(machine_.gpu());
    options.pool = &pool;
    options.kernel = kernel;
    if (change) change(options);
    machine_.driver().fail_call(1, cuda::memory_allocation, {"pool_alloc"});
    try {
      moe(options, Stream(machine_.gpu()));
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

  // Whether this call passes all checks.
  bool takes(MoeKernel kernel, const std::function<void(MoeOptions&)>& change = {}) {
    return refusal(kernel, change).starts_with("out of ");
  }

 private:
  std::mt19937 random_{1};
  FakeMachine machine_;
  MoeNumbers numbers_;
  MoeArrays arrays_;
};

TEST(MoeGpuKernels, NeedComputeCapability80) {
  MoeGpu gpu(7, 5, DType::bf16);
  for (const MoeKernel kernel : {MoeKernel::best, MoeKernel::portable, MoeKernel::large}) {
    const std::string refusal = gpu.refusal(kernel);
    EXPECT_NE(refusal.find("needs compute capability 8.0 or later, found 7.5"), std::string::npos)
        << refusal;
  }
}

TEST(MoeGpuKernels, SomeNeedComputeCapability90) {
  const std::pair<MoeKernel, std::string> kernels[] = {{MoeKernel::sequential, "sequential"},
                                                       {MoeKernel::large, "large"},
                                                       {MoeKernel::decode, "decode"}};
  for (const auto& capability : {std::pair{8, 9}, std::pair{10, 0}}) {
    MoeGpu gpu(capability.first, capability.second, DType::bf16);
    for (const auto& [kernel, name] : kernels) {
      const std::string refusal = gpu.refusal(kernel);
      EXPECT_NE(refusal.find("needs compute capability 9.0 for kernel " + name), std::string::npos)
          << refusal;
      EXPECT_NE(refusal.find("use the kernel portable"), std::string::npos) << refusal;
    }
  }
}

// The limit is one of bytes, since chunks of 16 bytes are counted in 32 bits.
TEST(MoeGpuKernels, RowsReachOverLessThan64GiBInAnyType) {
  for (const auto& [type, elements] : {std::pair{DType::f32, std::int64_t{1} << 34},
                                       std::pair{DType::bf16, std::int64_t{1} << 35}}) {
    MoeGpu gpu(9, 0, type);
    const auto refusal = [&](TensorView MoeOptions::* argument, std::int64_t reach) {
      return gpu.refusal(MoeKernel::best, [&](MoeOptions& options) {
        const TensorView view = options.*argument;
        const std::int64_t tokens = view.extent(0);
        options.*argument =
            changed(view, {tokens, view.extent(1)}, {reach / tokens / 8 * 8 + 8, 1});
      });
    };
    const std::string expected = "expected rows that reach over less than 64 GiB";
    EXPECT_NE(refusal(&MoeOptions::x, elements).find("x: " + expected), std::string::npos);
    EXPECT_NE(refusal(&MoeOptions::out, elements).find("out: " + expected), std::string::npos);
    EXPECT_EQ(refusal(&MoeOptions::x, elements / 2).find(expected), std::string::npos);
  }
}

// Which is there to be compared with the others on plain layers.
TEST(MoeGpuKernels, SequentialHasOneEpilogue) {
  MoeGpu gpu(9, 0, DType::bf16);
  const auto refusal = [&](const std::function<void(MoeOptions&)>& change) {
    return gpu.refusal(MoeKernel::sequential, change);
  };
  const std::string message = "kernel: expected another kernel, for biases";
  EXPECT_NE(refusal([](auto& o) { o.activation = MoeActivation::geglu; }).find(message),
            std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.down_bias = changed(o.x, {4, 16}); }).find(message),
            std::string::npos);
  EXPECT_NE(
      refusal([](auto& o) { o.down = changed(o.down, {4, 16, 8}, {8 * 16, 1, 16}); }).find(message),
      std::string::npos);
}

TEST(MoeGpuKernels, SomeDoNotTakeF32) {
  MoeGpu gpu(9, 0, DType::f32);
  for (const MoeKernel kernel : {MoeKernel::sequential, MoeKernel::large, MoeKernel::decode}) {
    const std::string refusal = gpu.refusal(kernel);
    EXPECT_NE(refusal.find("kernel: expected best or portable, for x of f32"), std::string::npos)
        << refusal;
  }
}

// The result of a token may depend on the others.
TEST(MoeGpuKernels, DecodeIsNotBatchInvariant) {
  MoeGpu gpu(9, 0, DType::bf16);
  const auto invariant = [](MoeOptions& options) { options.batch_invariant = true; };
  const std::string refusal = gpu.refusal(MoeKernel::decode, invariant);
  EXPECT_NE(refusal.find("kernel: expected best, large or portable, with batch_invariant, given "
                         "decode"),
            std::string::npos)
      << refusal;
  EXPECT_TRUE(gpu.takes(MoeKernel::decode));
  for (const MoeKernel kernel : {MoeKernel::best, MoeKernel::large, MoeKernel::portable}) {
    EXPECT_TRUE(gpu.takes(kernel, invariant));
  }
}

// Chunks of 16 bytes are counted in 32 bits. The memory of these calls does not exist.
TEST(MoeGpuKernels, DecodeTakesLessThan64GiBOfIntermediateResults) {
  MoeGpu gpu(9, 0, DType::bf16);
  // Elements of 2 bytes: T K n of the chosen experts and T m of the shared one.
  const auto sizes = [](std::int64_t tokens, std::int64_t choices, std::int64_t width,
                        std::int64_t shared_width) {
    return [=](MoeOptions& options) {
      constexpr std::int64_t experts = 16, hidden = 16;
      const auto far = [&](std::uintptr_t number, DType type, std::vector<std::int64_t> shape) {
        return TensorView(reinterpret_cast<std::byte*>((number + 1) << 42U), type, shape,
                          options.x.place());
      };
      options.x = far(0, DType::bf16, {tokens, hidden});
      options.gate_up = far(1, DType::bf16, {experts, 2 * width, hidden});
      options.down = far(2, DType::bf16, {experts, hidden, width});
      options.ids = far(3, DType::i32, {tokens, choices});
      options.weights = far(4, DType::f32, {tokens, choices});
      options.out = far(5, DType::bf16, {tokens, hidden});
      if (shared_width == 0) return;
      options.shared_gate_up = far(6, DType::bf16, {2 * shared_width, hidden});
      options.shared_down = far(7, DType::bf16, {hidden, shared_width});
    };
  };
  const auto refusal = [&](const std::function<void(MoeOptions&)>& call) {
    return gpu.refusal(MoeKernel::decode, call);
  };
  const std::string message = "kernel: expected best, large or portable, for inputs of the";
  constexpr std::int64_t most = 1 << 20;
  EXPECT_NE(refusal(sizes(most / 2, 16, 4096, 0)).find(message), std::string::npos);
  EXPECT_NE(refusal(sizes(most, 1, 8, 32768)).find(message), std::string::npos);
  EXPECT_TRUE(gpu.takes(MoeKernel::decode, sizes(most / 2 - 1, 16, 4096, 0)));
  EXPECT_TRUE(gpu.takes(MoeKernel::decode, sizes(most - 1, 1, 8, 32768)));
  EXPECT_TRUE(gpu.takes(MoeKernel::large, sizes(most / 2, 16, 4096, 0)));
}

TEST(MoeGpuKernels, DecodeNeedsInterleavedColumns) {
  MoeGpu gpu(9, 0, DType::bf16, {.padding = 48, .gate_up_by_column = true});
  const std::string refusal = gpu.refusal(MoeKernel::decode);
  EXPECT_NE(refusal.find("kernel: expected best, large or portable, for concatenated gate and up "
                         "with contiguous columns, given decode"),
            std::string::npos)
      << refusal;
}

}  // namespace
}  // namespace ps::test
