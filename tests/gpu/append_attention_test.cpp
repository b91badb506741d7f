// append_attention() on a GPU has the bits of append_kv() and then attention() with the same
// kernel.
#include "penstock/ops/append_attention.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gpu/copies.h"
#include "gpu/gpu_test.h"
#include "gpu/recording.h"
#include "penstock/base/error.h"
#include "penstock/host/cuda.h"
#include "support/append_attention_call.h"

namespace ps::test {
namespace {

// Rounded up by the portable kernel.
const std::vector<AttentionDims> other_dims{{8, 8}, {16, 40}, {104, 128}, {136, 8}, {40, 256}};
const std::vector<DType> types{DType::bf16, DType::f16, DType::f32};
const std::vector<std::int64_t> fast_pages{8, 16, 24, 64, 128, 256};
const std::vector<std::int64_t> other_pages{1, 3, 12, 20, 100};

struct How {
  AttentionKernel kernel = AttentionKernel::best;
  bool batch_invariant = false, check = false;
};

class AppendAttentionGpuTest : public GpuTest {
 protected:
  static constexpr std::size_t margin = 4096;  // bytes of poison around the workspace

  // "" if one call has the bits of two.
  std::string differs(const AppendAttentionCall& made, const How& how) const {
    AppendAttentionCall joined = made, apart = made;
    const std::string wrong = run(joined, how, true) + run(apart, how, false);
    return wrong.empty() ? joined.differs(apart) : wrong;
  }

  void expect_same(std::uint32_t seed, const AppendAttentionCase& of,
                   AttentionKernel kernel) const {
    const AppendAttentionCall made(seed, of);
    for (const bool batch_invariant : {false, true}) {
      ASSERT_EQ(differs(made, {.kernel = kernel, .batch_invariant = batch_invariant}), "")
          << "seed " << seed << (batch_invariant ? ", batch invariant" : "");
    }
  }

  // Runs the call in poisoned memory of the GPU, joined or in two steps. Results are as the GPU
  // left them.
  std::string run(AppendAttentionCall& call, const How& how, bool joined) const {
    const Stream stream(gpu);
    const Pool pool(gpu);
    Copies copies(gpu, stream);
    AppendAttentionCall::Arguments of =
        call.arguments([&](Strided& array) { return copies.of(array); });
    of.attention.kernel = how.kernel;
    of.attention.batch_invariant = how.batch_invariant;
    of.append.check = how.check;
    if (!joined) {
      of.attention.pool = &pool;
      AppendAttentionCall::run_apart(of, stream);
      copies.fetch();
      return "";
    }
    const std::size_t bytes = append_attention_workspace_bytes(of.append, of.attention);
    const DeviceBuffer memory(gpu, bytes + 2 * margin);
    ps::fill(memory.view(), Strided::poison, stream);
    of.attention.workspace = memory.view().sub(margin, bytes);
    append_attention(of.append, of.attention, stream);
    copies.fetch();
    for (const std::size_t begin : {std::size_t{0}, margin + bytes}) {
      for (const std::uint8_t byte : fetch<std::uint8_t>(memory.view(), begin, margin, stream)) {
        if (byte != Strided::poison) return "wrote around the workspace";
      }
    }
    return "";
  }
};

class AppendAttentionGpu : public AppendAttentionGpuTest,
                           public testing::WithParamInterface<AttentionKernel> {};

std::string kernel_name(const testing::TestParamInfo<AttentionKernel>& kernel) {
  return kernel.param == AttentionKernel::decode ? "Decode" : "Portable";
}
INSTANTIATE_TEST_SUITE_P(Kernels, AppendAttentionGpu,
                         testing::Values(AttentionKernel::decode, AttentionKernel::decode_portable),
                         kernel_name);

TEST_P(AppendAttentionGpu, RandomCalls) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    const std::vector<std::int64_t>& pages = seed % 4 == 0 ? other_pages : fast_pages;
    expect_same(seed, random_append_attention(seed, 500, fast_attention_dims, types, pages),
                GetParam());
    if (HasFatalFailure()) return;
  }
}

TEST_P(AppendAttentionGpu, OtherDimensions) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    expect_same(seed, random_append_attention(seed, 300, other_dims, types, {8, 5, 32}),
                GetParam());
    if (HasFatalFailure()) return;
  }
}

// New rows at the borders of blocks and pages, and more tiles than one that read them.
TEST_P(AppendAttentionGpu, BordersOfBlocks) {
  for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours}) {
    for (const std::int64_t page_rows : {0, 16, 128}) {
      for (const std::int32_t rows : {0, 1, 62, 63, 64, 120, 127, 128, 191}) {
        for (const std::int64_t each : {1, 9}) {
          expect_same(3,
                      {.each = each,
                       .capacity = 200,
                       .group = rows % 2 == 0 ? 4 : 20,
                       .dim = 128,
                       .dim_v = 128,
                       .rotated = 128,
                       .pairs = pairs,
                       .page_rows = page_rows,
                       .lengths = {rows, 191 - rows}},
                      GetParam());
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Many items per block of threads, and many blocks of threads per item.
TEST_P(AppendAttentionGpu, ShapesOfModels) {
  AppendAttentionCase many{.sequences = 90,
                           .capacity = 300,
                           .heads_k = 8,
                           .group = 4,
                           .dim = 128,
                           .dim_v = 128,
                           .rotated = 128,
                           .advance = true};
  for (int b = 0; b < 90; ++b) many.lengths.push_back(b * 37 % 300);
  expect_same(1, many, GetParam());
  many.page_rows = 16;
  many.heads_first = true;
  expect_same(1, many, GetParam());
  if (HasFatalFailure()) return;
  for (const std::int64_t each : {1, 4, 16}) {
    expect_same(2,
                {.sequences = 1,
                 .each = each,
                 .capacity = 30000,
                 .heads_k = 2,
                 .group = 7,
                 .dim = 128,
                 .dim_v = 128,
                 .rotated = 128,
                 .pairs = RotaryPairs::neighbours,
                 .page_rows = 64,
                 .lengths = {29900}},
                GetParam());
    if (HasFatalFailure()) return;
  }
}

TEST_P(AppendAttentionGpu, RowsWithoutRoomAndBadPages) {
  for (const DType type : {DType::bf16, DType::f32}) {
    for (const std::int64_t page_rows : {0, 8}) {
      for (const std::int32_t length : {-100, -3, 36, 39, 40, 1000, INT32_MAX, INT32_MIN}) {
        expect_same(4,
                    {.each = 5,
                     .group = length % 2 == 0 ? 2 : 40,
                     .type = type,
                     .page_rows = page_rows,
                     .lengths = {length, 20},
                     .advance = true,
                     .bad_pages = page_rows > 0},
                    GetParam());
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Rows that no query attends to are written, too.
TEST_P(AppendAttentionGpu, RowsThatNoQuerySees) {
  for (const DType type : {DType::bf16, DType::f32}) {
    const AppendAttentionCase of{.each = 3, .capacity = 600, .type = type, .lengths = {400, 500}};
    AppendAttentionCase hidden = of, beyond = of;
    hidden.first_k = {600, 600};
    expect_same(1, hidden, GetParam());
    beyond.max_k = 100;
    expect_same(2, beyond, GetParam());
    expect_same(3,
                {.capacity = 600,
                 .type = type,
                 .cu_new = {0, 200, 330},
                 .lengths = {300, 400},
                 .window_left = 1,
                 .max_q = 2},
                GetParam());
    if (HasFatalFailure()) return;
  }
}

TEST_P(AppendAttentionGpu, SurvivesAbsurdBegins) {
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    AppendAttentionCall call(
        1,
        {.capacity = 300, .cu_new = {0, 3, 5}, .lengths = {1, 200}, .advance = true, .max_q = 3});
    for (std::int64_t b = 0; b < 3; ++b) {
      call.cu_new().set_bits({b}, random() % 3 == 0 ? random() : random() % 8);
    }
    ASSERT_EQ(run(call, {.kernel = GetParam()}, true), "");
    ASSERT_TRUE(call.surroundings_untouched());
  }
}

TEST_P(AppendAttentionGpu, GivesTheSameBitsEveryTime) {
  const AppendAttentionCase of{.sequences = 3,
                               .each = 2,
                               .capacity = 5000,
                               .group = 40,
                               .dim = 128,
                               .dim_v = 128,
                               .rotated = 128,
                               .lengths = {4990, 17, 3333}};
  const AppendAttentionCall made(3, of);
  AppendAttentionCall first = made;
  ASSERT_EQ(run(first, {.kernel = GetParam()}, true), "");
  for (int round = 0; round < 100; ++round) {
    AppendAttentionCall again = made;
    ASSERT_EQ(run(again, {.kernel = GetParam()}, true), "");
    ASSERT_EQ(again.differs(first), "") << "round " << round;
  }
}

// A graph of one step, whose replays append one row after the other.
TEST_P(AppendAttentionGpu, MayBeCaptured) {
  const Stream stream(gpu);
  const Pool pool(gpu);
  const AppendAttentionCase of{.capacity = 300,
                               .dim = 128,
                               .dim_v = 128,
                               .rotated = 128,
                               .page_rows = 16,
                               .lengths = {120, 7},
                               .advance = true};
  AppendAttentionCall joined(1, of), apart(1, of);
  AppendAttentionCall::Arguments call;
  Copies copies(gpu, stream);
  const auto place = [&](Strided& array) { return copies.of(array); };
  call = joined.arguments(place);
  call.attention.kernel = GetParam();
  const DeviceBuffer workspace(gpu, append_attention_workspace_bytes(call.append, call.attention));
  call.attention.workspace = workspace.view();
  append_attention(call.append, call.attention, stream);  // loads the kernels
  stream.synchronize();
  Recording recording(cuda_stream(stream));
  append_attention(call.append, call.attention, stream);
  EXPECT_TRUE(recording.active());
  for (int step = 1; step < 20; ++step) recording.replay(cuda_stream(stream));

  AppendAttentionCall::Arguments steps = apart.arguments(place);
  steps.attention.kernel = GetParam();
  steps.attention.pool = &pool;
  steps.ends = steps.append.lengths;  // which append_kv() has advanced
  for (int step = 0; step < 20; ++step) AppendAttentionCall::run_apart(steps, stream);
  copies.fetch();
  EXPECT_EQ(joined.differs(apart), "");
  EXPECT_EQ(joined.lengths().bits({0}), 140U);
}

using AppendAttentionStepsGpu = AppendAttentionGpuTest;

// Calls for which there is no kernel that does both.
TEST_F(AppendAttentionStepsGpu, OtherKernels) {
  const std::vector<DType> all{DType::bf16, DType::f16, DType::f32};
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    AppendAttentionCase of =
        random_append_attention(seed, 300, fast_attention_dims, all, {8, 64, 5});
    const bool best = seed % 2 == 0 && of.cu_new.empty();
    if (best) {
      of.each = 17 + seed % 60;
      of.length = 0;
      of.lengths.assign(static_cast<std::size_t>(of.sequences), 3);
    }
    ASSERT_EQ(differs(AppendAttentionCall(seed, of),
                      {.kernel = best ? AttentionKernel::best : AttentionKernel::portable}),
              "")
        << "seed " << seed;
  }
}

TEST_F(AppendAttentionStepsGpu, ACheckFindsRowsWithoutAPlace) {
  for (const std::int64_t each : {1, 17}) {
    const AppendAttentionCase of{.each = each, .page_rows = 8, .lengths = {3, 20}};
    EXPECT_EQ(differs(AppendAttentionCall(1, of), {.check = true}), "");
    AppendAttentionCase full = of;
    full.lengths = {3, 40};
    AppendAttentionCall call(1, full);
    try {
      run(call, {.check = true}, true);
      FAIL();
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "lengths");
    }
  }
}

}  // namespace
}  // namespace ps::test
