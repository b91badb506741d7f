// moe() on a GPU: the formula within its tolerance, the same bits in whatever way the work is cut,
// and nothing written but `out` and the workspace.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpu/copies.h"
#include "gpu/gpu_test.h"
#include "gpu/moe_gpu.h"
#include "ops/moe/workspace.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/moe.h"
#include "support/moe_arrays.h"

namespace ps::test {
namespace {

TEST_F(MoeGpu, AgreesWithTheFormula) {
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomMoe call(seed, false);
    OnGpu there(call.arrays(), gpu, *stream);
    moe(there.options(), *stream);
    there.fetch();
    ASSERT_EQ(call.wrong(), "");
    ASSERT_TRUE(there.surroundings_untouched());
  }
}

// Experts with every number of rows at which a tile begins or ends, and d and n that are not whole
// steps and columns.
TEST_F(MoeGpu, AnyNumberOfRows) {
  const std::vector<int> counts{0, 1, 63, 64, 65, 129, 193, 0, 127, 191, 192, 257, 15, 17, 0};
  EXPECT_EQ(run(with_counts(counts, 72, 136, DType::bf16, 1)), "");
  EXPECT_EQ(run(with_counts(counts, 264, 40, DType::f16, 2)), "");
}

TEST_F(MoeGpu, AllTokensOnOneExpert) {
  EXPECT_EQ(run(with_counts({0, 700, 0}, 128, 64, DType::bf16, 3)), "");
  EXPECT_EQ(run(with_counts({1}, 8, 8, DType::bf16, 4)), "");
}

TEST_F(MoeGpu, ManyStepsAndColumns) {
  EXPECT_EQ(run(with_counts({5, 0, 200, 70}, 1032, 528, DType::bf16, 5)), "");
}

// Rows so long that the short tiles of all experts are computed last, in the up-projection and in
// the down-projection; some experts are not there.
TEST_F(MoeGpu, ShortTilesLast) {
  const std::vector<int> counts{0, 1, 64, 65, 193, 400, 0, 192, 256, 15};
  const MoeStorage storage{.slots = {0, 1, -1, 2, 3, 4, 5, 6, -1, 7}, .slot_count = 8};
  for (const MoeKernel kernel : {MoeKernel::large, MoeKernel::portable}) {
    EXPECT_EQ(run(with_counts(counts, 7168, 8, DType::bf16, 20), storage, kernel), "");
    EXPECT_EQ(run(with_counts(counts, 8, 7168, DType::bf16, 21), storage, kernel), "");
  }
}

TEST_F(MoeGpu, ManyExperts) {
  std::mt19937 random(14);
  const MoeNumbers numbers({.tokens = 900, .choices = 2, .hidden = 16, .width = 8, .experts = 1024},
                           random);
  EXPECT_EQ(run(numbers), "");
}

// No expert is there: a result of zeros, in one call and in steps.
TEST_F(MoeGpu, NoExperts) {
  std::mt19937 random(15);
  const MoeNumbers numbers({.tokens = 70}, random);
  const MoeStorage none{.slots = {-1, 4, 1 << 30, -1}};
  EXPECT_EQ(run(numbers, none), "");

  MoeArrays arrays(numbers, none);
  OnGpu there(arrays, gpu, *stream);
  moe_plan(there.options(), *stream);
  moe_combine(there.options(), *stream);  // at once: the steps may overlap
  there.fetch();
  EXPECT_EQ(wrong(arrays.out(), expected(numbers, arrays.present())), "");

  MoeOptions empty = there.options();
  const std::int64_t gate_up[] = {0, 16, 16}, down[] = {0, 16, 8};
  empty.gate_up = TensorView(nullptr, DType::bf16, gate_up, gpu.place());
  empty.down = TensorView(nullptr, DType::bf16, down, gpu.place());
  moe(empty, *stream);
  there.fetch();
  EXPECT_EQ(wrong(arrays.out(), expected(numbers, arrays.present())), "");
}

TEST_F(MoeGpu, NanStaysInItsToken) {
  expect_nan_stays_in_its_token(DType::bf16, {}, MoeKernel::large);
}

TEST_F(MoeGpu, NoTokens) {
  std::mt19937 random(6);
  const MoeNumbers numbers({.tokens = 0}, random);
  EXPECT_EQ(run(numbers), "");
}

// The order of rows is that of the CPU, which sorts one pair after the other.
TEST_F(MoeGpu, SortsAsTheCpu) {
  std::mt19937 random(7);
  using Size = std::pair<std::int64_t, std::int64_t>;  // tokens, experts
  for (const auto& [tokens, experts_now] :
       {Size{1, 129}, Size{31, 129}, Size{700, 1024}, Size{5000, 700}, Size{40000, 129}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << experts_now << " experts");
    MoeNumbers numbers(
        {.tokens = tokens, .choices = 7, .hidden = 8, .width = 8, .experts = experts_now}, random);
    for (std::int64_t& id : numbers.ids) {
      if (random() % 16 == 0) id = numbers.shape.experts + static_cast<int>(random() % 3);
    }
    MoeArrays arrays(numbers);
    OnGpu there(arrays, gpu, *stream);
    moe_plan(there.options(), *stream);
    stream->synchronize();

    MoeOptions here = arrays.options();
    const std::size_t bytes = moe_workspace_bytes(here);
    std::vector<std::uint8_t> memory(bytes + 256);
    auto* const aligned = reinterpret_cast<std::byte*>(
        (reinterpret_cast<std::uintptr_t>(memory.data()) + 255) / 256 * 256);
    here.workspace = {aligned, bytes, {}};
    const Stream cpu(Device::cpu());
    moe_plan(here, cpu);
    cpu.synchronize();

    const detail::MoeWorkspace space = detail::moe_workspace(
        tokens * 7, numbers.shape.experts, numbers.shape.hidden, numbers.shape.width, 2);
    const auto rows = static_cast<std::size_t>(tokens) * 7;
    const auto experts = static_cast<std::size_t>(numbers.shape.experts);
    const auto same = [&](std::size_t offset, std::size_t count, const char* part) {
      const auto gpu_words =
          test::fetch<std::uint32_t>(there.options().workspace, offset, count, *stream);
      const auto* const words = reinterpret_cast<const std::uint32_t*>(aligned + offset);
      EXPECT_TRUE(std::equal(gpu_words.begin(), gpu_words.end(), words)) << part;
    };
    same(space.offsets, experts + 1, "offsets");
    const std::size_t valid =
        reinterpret_cast<const std::uint32_t*>(aligned + space.offsets)[experts];
    same(space.source, valid, "source");
    same(space.place, rows, "place");
  }
}

TEST_F(MoeGpu, PartsHaveTheBitsOfTheWhole) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const MoeNumbers numbers(
        {.tokens = 150, .choices = 3, .hidden = 136, .width = 72, .experts = 9}, random);
    expect_parts_are_the_whole(numbers, {}, MoeKernel::large, random);
    if (HasFailure()) return;
  }
}

// Which block takes which of several hundred tiles differs from run to run; the bits do not. Two
// inputs take turns in one workspace, so that nothing right is left there by the run before.
// Kernels of another stream take multiprocessors in some of the runs.
TEST_F(MoeGpu, TheSameBitsEveryTime) {
  std::mt19937 random(8);
  const MoeShape shape{.tokens = 3000, .choices = 4, .hidden = 520, .width = 1032, .experts = 11};
  const MoeNumbers numbers[] = {{shape, random}, {shape, random}};
  MoeArrays arrays[] = {MoeArrays(numbers[0]), MoeArrays(numbers[1])};
  OnGpu calls[] = {{arrays[0], gpu, *stream}, {arrays[1], gpu, *stream}};
  calls[1].options().workspace = calls[0].options().workspace;
  std::vector<std::uint8_t> first[2];
  for (int which = 0; which < 2; ++which) {
    first[which] = calls[which].run_again();
    // The CPU's result differs by roundings only.
    MoeOptions here = arrays[which].options();
    const Pool pool(Device::cpu());
    here.pool = &pool;
    const Stream cpu(Device::cpu());
    moe(here, cpu);
    cpu.synchronize();
    double largest = 0, error = 0;
    for (std::int64_t i = 0; i < shape.tokens * shape.hidden; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, first[which].data() + 2 * i, 2);
      const double got = decoded(bits, shape.type);
      const auto right = decoded(static_cast<std::uint32_t>(arrays[which].out().bits(
                                     {i / shape.hidden, i % shape.hidden})),
                                 shape.type);
      largest = std::max(largest, std::abs(right));
      error = std::isnan(got) ? got : std::max(error, std::abs(got - right));
      ASSERT_FALSE(std::isnan(error)) << i;
    }
    ASSERT_LE(error, 4 * spacing(largest, shape.type));
  }
  OtherWork other(gpu);
  for (int repeat = 0; repeat < 1000; ++repeat) {
    if (repeat % 3 > 0) other.enqueue();
    ASSERT_EQ(calls[repeat % 2].run_again(), first[repeat % 2]) << "repeat " << repeat;
  }
}

TEST_F(MoeGpu, WithoutOverlapTheBitsAreTheSame) {
  std::mt19937 random(12);
  for (const DType type : {DType::bf16, DType::f16}) {
    const MoeNumbers numbers(
        {.tokens = 400, .choices = 3, .hidden = 136, .width = 264, .experts = 5, .type = type},
        random);
    MoeArrays overlapped(numbers), sequential(numbers);
    OnGpu one(overlapped, gpu, *stream), other(sequential, gpu, *stream);
    other.options().kernel = MoeKernel::sequential;
    moe(one.options(), *stream);
    moe(other.options(), *stream);
    one.fetch();
    other.fetch();
    EXPECT_EQ(wrong(overlapped.out(), expected(numbers)), "");
    EXPECT_EQ(bits_of(sequential), bits_of(overlapped));
  }
}

TEST_F(MoeGpu, ATokenDoesNotDependOnItsNeighbours) {
  expect_tokens_are_independent(MoeKernel::best);
}

TEST_F(MoeGpu, CanBeCaptured) {
  std::mt19937 random(10);
  const MoeNumbers numbers({.tokens = 100, .choices = 2, .hidden = 64, .width = 72, .experts = 5},
                           random);
  expect_replays(numbers, MoeKernel::large);
}

// Results of experts that do not fit into 2^31 elements. All tokens are alike but for the order of
// their experts, which repeats every eight tokens.
TEST_F(MoeGpu, MoreThanTwoToThe31Elements) {
  constexpr std::int64_t period = 8, tokens = 16384 * period, choices = 8, hidden = 2056;
  static_assert(tokens * choices * hidden > std::int64_t{1} << 31);
  constexpr std::uint8_t fill_byte = 0x3c;  // bf16 0x3c3c, about 0.0115
  std::mt19937 random(13);
  MoeNumbers few({.tokens = period, .choices = choices, .hidden = hidden, .width = 8, .experts = 8},
                 random);
  std::ranges::fill(few.x, static_cast<float>(decoded(0x3c3c, DType::bf16)));
  std::ranges::fill(few.weights, 0.125F);
  MoeArrays small(few);
  OnGpu there(small, gpu, *stream);
  moe(there.options(), *stream);
  there.fetch();
  ASSERT_EQ(wrong(small.out(), expected(few)), "");

  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < tokens * choices; ++i) {
    ids.push_back(static_cast<std::int32_t>(few.ids[static_cast<std::size_t>(i) % few.ids.size()]));
  }
  const std::vector<float> weights(ids.size(), 0.125F);
  const std::size_t x_bytes = std::size_t{tokens} * hidden * 2;
  const DeviceBuffer x(gpu, x_bytes), out(gpu, x_bytes), id(gpu, ids.size() * 4),
      weight(gpu, ids.size() * 4);
  fill(x.view(), fill_byte, *stream);
  fill(out.view(), poison, *stream);
  send(id.view(), 0, ids, *stream);
  send(weight.view(), 0, weights, *stream);
  MoeOptions call = there.options();
  const auto view = [&](const DeviceBuffer& memory, DType type, std::int64_t columns) {
    return TensorView(memory.view().data, type, {tokens, columns}, gpu.place());
  };
  call.x = view(x, DType::bf16, hidden);
  call.out = view(out, DType::bf16, hidden);
  call.ids = view(id, DType::i32, choices);
  call.weights = view(weight, DType::f32, choices);
  const DeviceBuffer memory(gpu, moe_workspace_bytes(call));
  call.workspace = memory.view();
  moe(call, *stream);
  const auto got = test::fetch<std::uint16_t>(out.view(), 0, x_bytes / 2, *stream);
  std::vector<std::uint16_t> right;
  for (std::int64_t i = 0; i < period * hidden; ++i) {
    right.push_back(static_cast<std::uint16_t>(small.out().bits({i / hidden, i % hidden})));
  }
  for (std::size_t first = 0; first < got.size(); first += right.size()) {
    ASSERT_TRUE(
        std::equal(right.begin(), right.end(), got.begin() + static_cast<std::ptrdiff_t>(first)))
        << "tokens from " << first / hidden << " on";
  }
}

TEST_F(MoeGpu, MemoryFromAPool) {
  std::mt19937 random(11);
  const MoeNumbers numbers({.tokens = 40}, random);
  MoeArrays arrays(numbers);
  OnGpu there(arrays, gpu, *stream);
  const Pool pool(gpu);
  MoeOptions call = there.options();
  call.workspace = {};
  call.pool = &pool;
  moe(call, *stream);
  there.fetch();
  EXPECT_EQ(wrong(arrays.out(), expected(numbers)), "");
  EXPECT_EQ(pool.statistics().in_use, 0U);
}

}  // namespace
}  // namespace ps::test
