// Arguments that moe() refuses, and memory that runs out.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "host/cpu/backend.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/ops/moe.h"
#include "support/expect_clean.h"
#include "support/failing_heap.h"
#include "support/fake_machine.h"
#include "support/guarded_memory.h"
#include "support/moe_arrays.h"

namespace ps::test {
namespace {

struct MoeRefusal {
  std::string argument, expected, given;
};

using MoeStep = void (*)(const MoeOptions&, const Stream&);

MoeRefusal moe_refusal(const MoeOptions& options, const Stream& stream, MoeStep step = moe) {
  try {
    step(options, stream);
    stream.synchronize();
  } catch (const InvalidArgument& error) {
    EXPECT_FALSE(error.expected().empty());
    EXPECT_FALSE(error.given().empty());
    return {error.argument(), error.expected(), error.given()};
  }
  return {};
}

TensorView changed(const TensorView& view, std::vector<std::int64_t> shape,
                   std::vector<std::int64_t> strides = {}) {
  if (strides.empty()) return {view.data(), view.dtype(), shape, view.place()};
  return {view.data(), view.dtype(), shape, strides, view.place()};
}
TensorView typed(const TensorView& view, DType type) {
  return {view.data(), type, view.shape(), view.strides(), view.place()};
}
TensorView at_place(const TensorView& view, Place place) {
  return {view.data(), view.dtype(), view.shape(), view.strides(), place};
}
TensorView moved(const TensorView& view, std::size_t bytes) {
  return {static_cast<std::byte*>(view.data()) + bytes, view.dtype(), view.shape(), view.strides(),
          view.place()};
}

// A call that is right: T = 6, K = 2, d = 16, n = 8, E = 4, in 5 slots. Tests spoil it.
class MoeErrors : public testing::Test {
 protected:
  using Spoil = std::function<void(MoeOptions&)>;

  MoeErrors() { options.workspace = workspace.view(); }

  MoeRefusal spoilt(const Spoil& spoil) const {
    MoeOptions bad = options;
    spoil(bad);
    return moe_refusal(bad, stream);
  }
  // The argument that is named.
  std::string named(const Spoil& spoil) const { return spoilt(spoil).argument; }

  std::mt19937 random{1};
  MoeNumbers numbers{{.tokens = 6}, random};
  MoeArrays arrays{numbers, {.slots = {0, 4, 1, 2}, .slot_count = 5, .padding = 8}};
  MoeOptions options = arrays.options();
  GuardedMemory workspace{moe_workspace_bytes(options)};
  Stream stream{Device::cpu()};
};

TEST_F(MoeErrors, NoneForACallThatIsRight) {
  EXPECT_EQ(named([](MoeOptions&) {}), "");
  EXPECT_EQ(named([](auto& o) { o.check = true; }), "");
  EXPECT_EQ(named([](auto& o) { o.slots = {}; }), "") << "five experts then";
}

TEST_F(MoeErrors, RanksAndShapes) {
  EXPECT_EQ(named([](auto& o) { o.x = {}; }), "x");
  EXPECT_EQ(named([](auto& o) { o.x = changed(o.x, {1, 6, 16}); }), "x");
  EXPECT_EQ(named([](auto& o) { o.x = changed(o.x, {6, 8}); }), "gate_up");
  EXPECT_EQ(named([](auto& o) { o.x = changed(o.x, {5, 16}); }), "ids");
  EXPECT_EQ(named([](auto& o) { o.gate_up = {}; }), "gate_up");
  EXPECT_EQ(named([](auto& o) { o.gate_up = changed(o.gate_up, {80, 16}); }), "gate_up");
  EXPECT_EQ(named([](auto& o) { o.gate_up = changed(o.gate_up, {5, 15, 16}); }), "gate_up");
  EXPECT_EQ(named([](auto& o) { o.gate_up = changed(o.gate_up, {5, 16, 8}); }), "gate_up");
  EXPECT_EQ(named([](auto& o) { o.gate_up = changed(o.gate_up, {4, 16, 16}); }), "down");
  EXPECT_EQ(named([](auto& o) { o.down = {}; }), "down");
  EXPECT_EQ(named([](auto& o) { o.down = changed(o.down, {5, 8, 16}); }), "down");
  EXPECT_EQ(named([](auto& o) { o.ids = {}; }), "ids");
  EXPECT_EQ(named([](auto& o) { o.ids = changed(o.ids, {12}); }), "ids");
  EXPECT_EQ(named([](auto& o) { o.ids = changed(o.ids, {4, 3}); }), "ids");
  EXPECT_EQ(named([](auto& o) { o.weights = {}; }), "weights");
  EXPECT_EQ(named([](auto& o) { o.weights = changed(o.weights, {6, 1}); }), "weights");
  EXPECT_EQ(named([](auto& o) { o.out = {}; }), "out");
  EXPECT_EQ(named([](auto& o) { o.out = changed(o.out, {6, 8}); }), "out");
  EXPECT_EQ(named([](auto& o) { o.slots = changed(o.slots, {2, 2}); }), "slots");
  const MoeRefusal refusal = spoilt([](auto& o) { o.down = changed(o.down, {5, 8, 16}); });
  EXPECT_EQ(refusal.expected,
            "shape [5, 16, 8]: slots as in gate_up, d as in x, n (half of the rows of gate_up)");
  EXPECT_EQ(refusal.given, "bf16[5, 8, 16] on host");
}

TEST_F(MoeErrors, Types) {
  EXPECT_EQ(named([](auto& o) { o.x = typed(o.x, DType::i32); }), "x");
  EXPECT_EQ(named([](auto& o) { o.x = typed(o.x, DType::f64); }), "x");
  EXPECT_EQ(named([](auto& o) { o.x = typed(o.x, DType::f16); }), "gate_up");
  EXPECT_EQ(named([](auto& o) { o.gate_up = typed(o.gate_up, DType::f16); }), "gate_up");
  EXPECT_EQ(named([](auto& o) { o.down = typed(o.down, DType::f16); }), "down");
  EXPECT_EQ(named([](auto& o) { o.out = typed(o.out, DType::f16); }), "out");
  EXPECT_EQ(named([](auto& o) { o.ids = typed(o.ids, DType::u8); }), "ids");
  EXPECT_EQ(named([](auto& o) { o.weights = typed(o.weights, DType::f64); }), "weights");
  EXPECT_EQ(named([](auto& o) { o.slots = typed(o.slots, DType::boolean); }), "slots");
  EXPECT_EQ(named([](auto& o) { o.layout = GateUpLayout{2}; }), "layout");
  EXPECT_EQ(spoilt([](auto& o) { o.ids = typed(o.ids, DType::u8); }).expected,
            "elements of type i32 or i64");
}

// Views without elements may have any shape, so that limits need no memory.
TEST_F(MoeErrors, Limits) {
  EXPECT_EQ(spoilt([](auto& o) { o.x = changed(o.x, {6, 12}); }).expected,
            "d that is a multiple of 8");
  EXPECT_EQ(spoilt([](auto& o) { o.x = changed(o.x, {6, 12}); }).given,
            "12 in bf16[6, 12] on host");
  EXPECT_EQ(named([](auto& o) { o.x = changed(o.x, {6, 0}); }), "gate_up");
  EXPECT_EQ(named([](auto& o) {
              o.x = changed(o.x, {6, 0});
              o.gate_up = changed(o.gate_up, {5, 16, 0});
            }),
            "x");
  EXPECT_EQ(spoilt([](auto& o) { o.gate_up = changed(o.gate_up, {5, 8, 16}); }).expected,
            "n that is a multiple of 8");
  EXPECT_EQ(spoilt([](auto& o) { o.gate_up = changed(o.gate_up, {5, 0, 16}); }).expected,
            "n from 8 to 4194304");
  EXPECT_EQ(spoilt([](auto& o) { o.ids = changed(o.ids, {6, 0}); }).expected, "K from 1 to 4");
  EXPECT_EQ(named([](auto& o) { o.ids = changed(o.ids, {6, 5}); }), "ids") << "more than experts";
  EXPECT_EQ(named([](auto& o) {
              o.slots = {};
              o.gate_up = changed(o.gate_up, {0, 16, 16});
            }),
            "gate_up");

  constexpr std::int64_t many = std::int64_t{1} << 31;
  std::byte nothing{};  // no element is read
  const auto empty = [&](DType type, std::vector<std::int64_t> shape) {
    return TensorView(&nothing, type, shape);
  };
  const auto sized = [&](std::int64_t tokens, std::int64_t hidden, std::int64_t width,
                         std::int64_t slot_count, std::int64_t choices, std::int64_t experts) {
    std::string argument;
    try {
      moe_workspace_bytes({.x = empty(DType::bf16, {tokens, hidden}),
                           .gate_up = empty(DType::bf16, {slot_count, 2 * width, hidden}),
                           .ids = empty(DType::i32, {tokens, choices}),
                           .slots = empty(DType::i32, {experts})});
    } catch (const InvalidArgument& error) {
      argument = error.argument();
    }
    return argument;
  };
  EXPECT_EQ(sized(6, 16, 8, 1024, 16, 1024), "");
  EXPECT_EQ(sized(6, 16, 8, 1025, 16, 1024), "gate_up");
  EXPECT_EQ(sized(6, 16, 8, 1024, 16, 1025), "slots");
  EXPECT_EQ(sized(6, 16, 8, 0, 1, 4), "") << "no expert is there";
  EXPECT_EQ(sized(6, 16, 8, 4, 1, 0), "slots");
  EXPECT_EQ(sized(6, 16, 8, 1024, 17, 1024), "ids");
  EXPECT_EQ(sized(many / 2 - 1, 16, 8, 4, 2, 4), "");
  EXPECT_EQ(sized(many / 2, 16, 8, 4, 2, 4), "ids");
  EXPECT_EQ(sized(6, std::int64_t{1} << 23, 8, 1, 1, 1), "");
  EXPECT_EQ(sized(6, (std::int64_t{1} << 23) + 8, 8, 1, 1, 1), "x");
  EXPECT_EQ(sized(6, 8, std::int64_t{1} << 22, 1, 1, 1), "");
  EXPECT_EQ(sized(6, 8, (std::int64_t{1} << 22) + 8, 1, 1, 1), "gate_up");
  EXPECT_EQ(sized(many / 2, std::int64_t{1} << 20, 8, 1, 1, 1), "x") << "too many work items";
}

TEST_F(MoeErrors, Strides) {
  EXPECT_EQ(named([](auto& o) { o.x = changed(o.x, {6, 16}, {1, 6}); }), "x");
  EXPECT_EQ(named([](auto& o) { o.out = changed(o.out, {6, 16}, {1, 6}); }), "out");
  EXPECT_EQ(named([](auto& o) { o.gate_up = changed(o.gate_up, {5, 16, 16}, {256, 1, 16}); }),
            "gate_up");
  EXPECT_EQ(named([](auto& o) { o.down = changed(o.down, {5, 16, 8}, {128, 1, 16}); }), "down");
  for (const std::int64_t stride : {0, -16}) {
    EXPECT_EQ(named([&](auto& o) { o.gate_up = changed(o.gate_up, {5, 16, 16}, {stride, 16, 1}); }),
              "gate_up");
    EXPECT_EQ(named([&](auto& o) { o.down = changed(o.down, {5, 16, 8}, {128, stride, 1}); }),
              "down");
  }
  EXPECT_EQ(named([](auto& o) { o.ids = changed(o.ids, {6, 2}, {1, 6}); }), "ids");
  EXPECT_EQ(named([](auto& o) { o.weights = changed(o.weights, {6, 2}, {0, 1}); }), "weights");
  EXPECT_EQ(named([](auto& o) { o.slots = changed(o.slots, {2}, {2}); }), "slots");
  EXPECT_EQ(named([](auto& o) { o.x = moved(o.x, 1); }), "x");
  EXPECT_EQ(named([](auto& o) { o.weights = moved(o.weights, 2); }), "weights");
}

TEST_F(MoeErrors, ResultsThatOverlap) {
  EXPECT_EQ(named([](auto& o) { o.out = changed(o.out, {6, 16}, {8, 1}); }), "out");
  EXPECT_EQ(named([](auto& o) { o.out = o.x; }), "out");
  EXPECT_EQ(named([](auto& o) { o.x = moved(o.out, 16); }), "out");
  EXPECT_EQ(
      named([](auto& o) { o.out = {o.workspace.data, DType::bf16, {6, 16}, o.workspace.place}; }),
      "workspace");
  EXPECT_EQ(named([](auto& o) {
              o.ids = {o.workspace.data + 64, DType::i32, {6, 2}, o.workspace.place};
            }),
            "workspace");
}

TEST_F(MoeErrors, Workspaces) {
  const std::size_t bytes = moe_workspace_bytes(options);
  const MoeRefusal small = spoilt([&](auto& o) { o.workspace.bytes = bytes - 1; });
  EXPECT_EQ(small.argument, "workspace");
  EXPECT_EQ(small.expected, std::to_string(bytes) + " bytes or more");
  EXPECT_EQ(small.given, std::to_string(bytes - 1) + " bytes");
  GuardedMemory larger(bytes + 256);
  EXPECT_EQ(named([&](auto& o) { o.workspace = larger.view(); }), "");
  EXPECT_EQ(named([&](auto& o) { o.workspace = larger.view().sub(128, bytes); }), "workspace");
  EXPECT_EQ(named([](auto& o) { o.workspace.place = {Memory::device, 0}; }), "workspace");
  EXPECT_EQ(named([](auto& o) { o.workspace = {}; }), "workspace");
  const Pool pool(Device::cpu());
  EXPECT_EQ(named([&](auto& o) {
              o.workspace = {};
              o.pool = &pool;
            }),
            "");
  for (const MoeStep step : {moe_plan, moe_experts, moe_combine}) {
    EXPECT_EQ(moe_refusal(options, stream, step).argument, "");
    MoeOptions without = options;
    without.workspace = {};
    without.pool = &pool;
    EXPECT_EQ(moe_refusal(without, stream, step).argument, "workspace");
    without.x = {};
    EXPECT_EQ(moe_refusal(without, stream, step).argument, "x");
  }
  EXPECT_EQ(pool.statistics().allocations, 1U);
}

TEST_F(MoeErrors, MemoryOfAGpuOnTheCpu) {
  const Place gpu{Memory::device, 0};
  EXPECT_EQ(named([&](auto& o) { o.x = at_place(o.x, gpu); }), "x");
  EXPECT_EQ(named([&](auto& o) { o.gate_up = at_place(o.gate_up, gpu); }), "gate_up");
  EXPECT_EQ(named([&](auto& o) { o.down = at_place(o.down, gpu); }), "down");
  EXPECT_EQ(named([&](auto& o) { o.ids = at_place(o.ids, gpu); }), "ids");
  EXPECT_EQ(named([&](auto& o) { o.weights = at_place(o.weights, gpu); }), "weights");
  EXPECT_EQ(named([&](auto& o) { o.slots = at_place(o.slots, gpu); }), "slots");
  EXPECT_EQ(named([&](auto& o) { o.out = at_place(o.out, gpu); }), "out");
}

TEST_F(MoeErrors, NegativeIdsAreFoundByACheck) {
  auto* ids = static_cast<std::int32_t*>(options.ids.data());
  ids[7] = -3;
  ids[9] = -1;
  EXPECT_EQ(named([](MoeOptions&) {}), "");
  const MoeRefusal found = spoilt([](auto& o) { o.check = true; });
  EXPECT_EQ(found.argument, "ids");
  EXPECT_EQ(found.expected, "ids of 0 or more");
  EXPECT_EQ(found.given, "-3 at (t, k) = (3, 1)");
  MoeOptions checking = options;
  checking.check = true;
  EXPECT_EQ(moe_refusal(checking, stream, moe_plan).argument, "ids");
  EXPECT_EQ(moe_refusal(checking, stream, moe_combine).argument, "") << "it reads no ids";
  ids[7] = ids[9] = 1000;
  EXPECT_EQ(named([](auto& o) { o.check = true; }), "") << "an id of no expert is allowed";
}

// Ids that work before the call writes: the check waits for them.
TEST_F(MoeErrors, ACheckWaitsForTheIds) {
  auto* ids = static_cast<std::int32_t*>(options.ids.data());
  stream.call([ids] { ids[0] = -1; });
  EXPECT_EQ(named([](auto& o) { o.check = true; }), "ids");
}

TEST(MoeMemory, AnAllocationThatFailsLeavesNothing) {
  const auto heap = std::make_shared<FailingHeap>();
  {
    const Device device(std::make_shared<cpu::Backend>(heap));
    const Stream stream(device);
    const Pool pool(device);
    std::mt19937 random(1);
    const MoeNumbers numbers({}, random);
    MoeArrays arrays(numbers);
    MoeOptions options = arrays.options();
    options.pool = &pool;
    heap->fail_at(1);
    EXPECT_THROW(moe(options, stream), OutOfMemory);
    EXPECT_TRUE(heap->struck());
    EXPECT_EQ(pool.statistics().in_use, 0U);
    heap->fail_at(0);
    moe(options, stream);
    stream.synchronize();
    EXPECT_EQ(wrong(arrays.out(), expected(numbers)), "");
    EXPECT_EQ(pool.statistics().in_use, 0U);
  }
  EXPECT_EQ(heap->outstanding(), 0);
}

// On a fake GPU: what happens before anything is launched. Its memory is the host's.
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
}

TEST_F(MoeGpuErrors, TypesAndPlaces) {
  EXPECT_EQ(named([](auto& o) {
              o.x = typed(changed(o.x, {3, 16}), DType::f32);
              o.ids = changed(o.ids, {3, 2});
            }),
            "x");
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

TEST(MoeGpu, NeedsComputeCapability90) {
  for (const auto& capability : {std::pair{8, 9}, std::pair{10, 0}}) {
    FakeMachine machine({.adjust = [capability](int, cuda::Properties& gpu) {
      gpu.major = capability.first;
      gpu.minor = capability.second;
    }});
    std::mt19937 random(1);
    const MoeNumbers numbers({}, random);
    MoeArrays arrays(numbers);
    MoeOptions options =
        arrays.options([&](Strided& array) { return array.view(machine.gpu().place()); });
    const Pool pool(machine.gpu());
    options.pool = &pool;
    try {
      moe(options, Stream(machine.gpu()));
      FAIL();
    } catch (const Unsupported& error) {
      const std::string found =
          std::to_string(capability.first) + "." + std::to_string(capability.second);
      EXPECT_NE(std::string(error.what()).find("needs compute capability 9.0, found " + found),
                std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace ps::test
