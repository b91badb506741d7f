// Arguments that moe() refuses, and memory that runs out.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "host/cpu/backend.h"
#include "penstock/base/error.h"
#include "penstock/ops/moe.h"
#include "support/failing_heap.h"
#include "support/guarded_memory.h"
#include "support/moe_arrays.h"
#include "support/moe_errors.h"

namespace ps::test {
namespace {

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
            "shape (5, 16, 8): slots as in gate_up, d as in x, n (half of the rows of gate_up)");
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
            "n from 8 to 524288");
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
  EXPECT_EQ(sized(6, 16, 8, 8192, 16, 1024), "");
  EXPECT_EQ(sized(6, 16, 8, 8193, 16, 1024), "gate_up");
  EXPECT_EQ(sized(6, 16, 8, 1024, 16, 1025), "slots");
  EXPECT_EQ(sized(6, 16, 8, 0, 1, 4), "") << "no expert is there";
  EXPECT_EQ(sized(6, 16, 8, 4, 1, 0), "slots");
  EXPECT_EQ(sized(6, 16, 8, 1024, 17, 1024), "ids");
  EXPECT_EQ(sized(many / 2 - 1, 16, 8, 4, 2, 4), "");
  EXPECT_EQ(sized(many / 2, 16, 8, 4, 2, 4), "ids");
  EXPECT_EQ(sized(6, std::int64_t{1} << 20, 8, 1, 1, 1), "");
  EXPECT_EQ(sized(6, (std::int64_t{1} << 20) + 8, 8, 1, 1, 1), "x");
  EXPECT_EQ(sized(6, 8, std::int64_t{1} << 19, 1, 1, 1), "");
  EXPECT_EQ(sized(6, 8, (std::int64_t{1} << 19) + 8, 1, 1, 1), "gate_up");
  EXPECT_EQ(sized(many / 2, std::int64_t{1} << 19, 8, 1, 1, 1), "x") << "too many work items";
}

TEST_F(MoeErrors, Strides) {
  EXPECT_EQ(named([](auto& o) { o.x = changed(o.x, {6, 16}, {1, 6}); }), "x");
  EXPECT_EQ(named([](auto& o) { o.out = changed(o.out, {6, 16}, {1, 6}); }), "out");
  EXPECT_EQ(named([](auto& o) { o.gate_up = changed(o.gate_up, {5, 16, 16}, {256, 1, 16}); }), "");
  EXPECT_EQ(named([](auto& o) { o.down = changed(o.down, {5, 16, 8}, {128, 1, 16}); }), "");
  EXPECT_EQ(named([](auto& o) { o.gate_up = changed(o.gate_up, {5, 16, 16}, {1, 2, 16}); }),
            "gate_up");
  EXPECT_EQ(named([](auto& o) { o.down = changed(o.down, {5, 16, 8}, {128, 8, 2}); }), "down");
  EXPECT_EQ(spoilt([](auto& o) { o.down = changed(o.down, {5, 16, 8}, {128, 8, 2}); }).expected,
            "one of the last two dimensions contiguous (a stride of 1)");
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

TEST_F(MoeErrors, Activations) {
  EXPECT_EQ(named([](auto& o) { o.activation = MoeActivation{4}; }), "activation");
  EXPECT_EQ(named([](auto& o) { o.alpha = NAN, o.limit = -1; }), "") << "swiglu has neither";
  const auto clamped = [&](float alpha, float limit) {
    return named([&](auto& o) {
      o.activation = MoeActivation::clamped_swiglu;
      o.alpha = alpha;
      o.limit = limit;
    });
  };
  EXPECT_EQ(clamped(0, INFINITY), "");
  EXPECT_EQ(clamped(NAN, 7), "alpha");
  EXPECT_EQ(clamped(INFINITY, 7), "alpha");
  EXPECT_EQ(clamped(1, 0), "limit");
  EXPECT_EQ(clamped(1, -7), "limit");
  EXPECT_EQ(clamped(1, NAN), "limit");
}

TEST_F(MoeErrors, Kernels) {
  EXPECT_EQ(named([](auto& o) { o.kernel = MoeKernel{5}; }), "kernel");
  for (const MoeKernel kernel :
       {MoeKernel::sequential, MoeKernel::large, MoeKernel::decode, MoeKernel::portable}) {
    EXPECT_EQ(named([&](auto& o) { o.kernel = kernel; }), "") << "the CPU ignores it";
  }
}

// With biases and a shared expert of width 24.
class MoeExtraErrors : public MoeErrors {
 protected:
  MoeExtraErrors() {
    options = more_arrays.options();
    options.workspace = more_workspace.view();
  }

  MoeNumbers more_numbers{{.tokens = 6,
                           .gate_up_bias = true,
                           .down_bias = true,
                           .shared_width = 24,
                           .shared_weighted = true},
                          random};
  MoeArrays more_arrays{more_numbers, {.padding = 8}};
  GuardedMemory more_workspace{moe_workspace_bytes(more_arrays.options())};
};

TEST_F(MoeExtraErrors, NoneForACallThatIsRight) {
  EXPECT_EQ(named([](MoeOptions&) {}), "");
  EXPECT_EQ(named([](auto& o) { o.shared_weights = {}; }), "");
  EXPECT_EQ(named([](auto& o) { o.gate_up_bias = {}; }), "");
  EXPECT_EQ(named([](auto& o) { o.down_bias = {}; }), "");
  EXPECT_EQ(named([](auto& o) { o.shared_gate_up = o.shared_down = o.shared_weights = {}; }), "");
}

TEST_F(MoeExtraErrors, RanksAndShapes) {
  EXPECT_EQ(named([](auto& o) { o.gate_up_bias = changed(o.gate_up_bias, {4, 8}); }),
            "gate_up_bias");
  EXPECT_EQ(named([](auto& o) { o.gate_up_bias = changed(o.gate_up_bias, {3, 16}); }),
            "gate_up_bias");
  EXPECT_EQ(named([](auto& o) { o.gate_up_bias = changed(o.gate_up_bias, {64}); }), "gate_up_bias");
  EXPECT_EQ(named([](auto& o) { o.down_bias = changed(o.down_bias, {4, 8}); }), "down_bias");
  EXPECT_EQ(named([](auto& o) { o.shared_gate_up = changed(o.shared_gate_up, {1, 48, 16}); }),
            "shared_gate_up");
  EXPECT_EQ(named([](auto& o) { o.shared_gate_up = changed(o.shared_gate_up, {48, 8}); }),
            "shared_gate_up");
  EXPECT_EQ(
      spoilt([](auto& o) { o.shared_gate_up = changed(o.shared_gate_up, {40, 16}); }).expected,
      "m that is a multiple of 8");
  EXPECT_EQ(named([](auto& o) { o.shared_gate_up = changed(o.shared_gate_up, {0, 16}); }),
            "shared_gate_up");
  EXPECT_EQ(named([](auto& o) { o.shared_gate_up = changed(o.shared_gate_up, {32, 16}); }),
            "shared_down");
  EXPECT_EQ(named([](auto& o) { o.shared_down = {}; }), "shared_down");
  EXPECT_EQ(named([](auto& o) { o.shared_down = changed(o.shared_down, {24, 16}); }),
            "shared_down");
  EXPECT_EQ(named([](auto& o) { o.shared_weights = changed(o.shared_weights, {5}); }),
            "shared_weights");
  EXPECT_EQ(named([](auto& o) { o.shared_gate_up = {}; }), "shared_down");
  EXPECT_EQ(named([](auto& o) { o.shared_gate_up = o.shared_down = {}; }), "shared_weights");
}

TEST_F(MoeExtraErrors, Types) {
  EXPECT_EQ(named([](auto& o) { o.gate_up_bias = typed(o.gate_up_bias, DType::f16); }),
            "gate_up_bias");
  EXPECT_EQ(named([](auto& o) { o.down_bias = typed(o.down_bias, DType::f16); }), "down_bias");
  EXPECT_EQ(named([](auto& o) { o.shared_gate_up = typed(o.shared_gate_up, DType::f16); }),
            "shared_gate_up");
  EXPECT_EQ(named([](auto& o) { o.shared_down = typed(o.shared_down, DType::f16); }),
            "shared_down");
  EXPECT_EQ(named([](auto& o) { o.shared_weights = typed(o.shared_weights, DType::i32); }),
            "shared_weights");
}

TEST_F(MoeExtraErrors, StridesAndPlaces) {
  EXPECT_EQ(named([](auto& o) { o.gate_up_bias = changed(o.gate_up_bias, {4, 16}, {1, 4}); }),
            "gate_up_bias");
  EXPECT_EQ(named([](auto& o) { o.down_bias = changed(o.down_bias, {4, 16}, {1, 4}); }),
            "down_bias");
  EXPECT_EQ(named([](auto& o) { o.shared_gate_up = changed(o.shared_gate_up, {48, 16}, {2, 20}); }),
            "shared_gate_up");
  EXPECT_EQ(named([](auto& o) { o.shared_down = changed(o.shared_down, {16, 24}, {0, 1}); }),
            "shared_down");
  EXPECT_EQ(named([](auto& o) { o.shared_weights = changed(o.shared_weights, {6}, {0}); }),
            "shared_weights");
  const Place gpu{Memory::device, 0};
  EXPECT_EQ(named([&](auto& o) { o.gate_up_bias = at_place(o.gate_up_bias, gpu); }),
            "gate_up_bias");
  EXPECT_EQ(named([&](auto& o) { o.down_bias = at_place(o.down_bias, gpu); }), "down_bias");
  EXPECT_EQ(named([&](auto& o) { o.shared_gate_up = at_place(o.shared_gate_up, gpu); }),
            "shared_gate_up");
  EXPECT_EQ(named([&](auto& o) { o.shared_down = at_place(o.shared_down, gpu); }), "shared_down");
  EXPECT_EQ(named([&](auto& o) { o.shared_weights = at_place(o.shared_weights, gpu); }),
            "shared_weights");
}

TEST_F(MoeExtraErrors, ResultsThatOverlap) {
  EXPECT_EQ(named([](auto& o) { o.out = changed(o.gate_up_bias, {6, 16}, {8, 1}); }), "out");
  for (TensorView MoeOptions::* const input :
       {&MoeOptions::gate_up_bias, &MoeOptions::down_bias, &MoeOptions::shared_gate_up,
        &MoeOptions::shared_down}) {
    EXPECT_EQ(named([&](auto& o) {
                o.*input = {o.out.data(), DType::bf16, (o.*input).shape(), o.out.place()};
              }),
              "out");
  }
}

// The shared expert has a workspace of its own.
TEST_F(MoeExtraErrors, Workspaces) {
  const std::size_t bytes = moe_workspace_bytes(options);
  MoeOptions without = options;
  without.shared_gate_up = without.shared_down = without.shared_weights = {};
  EXPECT_LT(moe_workspace_bytes(without), bytes);
  EXPECT_EQ(named([&](auto& o) { o.workspace.bytes = bytes - 1; }), "workspace");
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
  EXPECT_EQ(named([&](auto& o) { o.workspace = larger.view().sub(64, bytes); }), "");
  EXPECT_EQ(named([&](auto& o) { o.workspace = larger.view().sub(32, bytes); }), "workspace");
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

}  // namespace
}  // namespace ps::test
