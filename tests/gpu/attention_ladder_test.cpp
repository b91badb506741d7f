// Every rung of the attention ladder is right, whatever the number of rows.
#include <algorithm>
#include <filesystem>
#include <random>
#include <string_view>
#include <vector>

#include "attention/support/rung.h"
#include "attention/support/tensors.h"
#include "gpu/gpu_test.h"
#include "gpu/kernel_roles.h"
#include "support/ladder.h"
#include "support/temporary_directory.h"

namespace {

using ladder::attention::Kernels;
using ladder::attention::Problem;
using ladder::attention::Shape;
using ladder::attention::Tensors;
using ladder::attention::usual_scale;
using ladder::attention::Variant;

// With this scale a few keys have most of the probability, and maxima grow on the way.
constexpr float large_scale = 2;

class AttentionLadder : public ps::test::GpuTest {
 protected:
  bool runs_here(const Kernels& kernels) const {
    return !kernels.hopper || gpu.capabilities().compute_major == 9;
  }

  // Runs every rung that `chosen` wants on the shape, all variants of it, twice, and checks results
  // against sums in double precision.
  template <class Chosen>
  void expect_right_if(const Shape& shape, const Chosen& chosen) {
    const ps::Stream stream(gpu);
    const Tensors bf16(stream, shape, ps::DType::bf16), f16(stream, shape, ps::DType::f16);
    for (const Kernels& kernels : ladder::attention::all_kernels()) {
      if (!runs_here(kernels) || !chosen(kernels)) continue;
      for (const Variant& variant : kernels.variants()) {
        const Tensors& tensors = variant.type == ps::DType::f16 ? f16 : bf16;
        for (const float scale : {usual_scale, large_scale}) {
          SCOPED_TRACE(::testing::Message()
                       << kernels.name << " (" << variant.label << ") with " << shape.heads
                       << " heads of " << shape.rows << " rows, scale " << scale);
          const Problem p = tensors.problem(variant.causal, scale);
          for (int run = 0; run < 2; ++run) {
            tensors.poison();
            variant.run(p, stream);
            EXPECT_NO_THROW(tensors.check(p));
          }
        }
      }
    }
  }
  void expect_right(const Shape& shape) {
    expect_right_if(shape, [](const Kernels&) { return true; });
  }
};

TEST_F(AttentionLadder, HasTwelveRungs) { EXPECT_EQ(ladder::attention::all_kernels().size(), 12u); }

TEST_F(AttentionLadder, Tiles) {
  expect_right({2, 64});
  expect_right({3, 128});
  expect_right({2, 256});
  expect_right({1, 384});
}

TEST_F(AttentionLadder, FewRows) {
  expect_right({1, 1});
  expect_right({3, 2});
  expect_right({2, 17});
}

TEST_F(AttentionLadder, OffByOne) {
  expect_right({2, 63});
  expect_right({2, 65});
  expect_right({2, 127});
  expect_right({2, 129});
  expect_right({2, 257});
}

// More tiles than multiprocessors, and many heads.
TEST_F(AttentionLadder, ManyTiles) {
  expect_right({67, 300});
  expect_right({5, 4100});
}

TEST_F(AttentionLadder, RandomSizes) {
  const unsigned seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE(::testing::Message() << "--gtest_random_seed=" << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 8; ++i) {
    const unsigned heads = 1 + static_cast<unsigned>(random() % 7);
    expect_right({heads, 1 + static_cast<unsigned>(random() % 700)});
  }
}

// The check itself: one element off, one missing, one too many.
TEST_F(AttentionLadder, ChecksFindWhatIsWrong) {
  const ps::Stream stream(gpu);
  const Tensors tensors(stream, {2, 70}, ps::DType::bf16);
  const Problem p = tensors.problem(false);
  const auto& all = ladder::attention::all_kernels();
  const auto scalar = std::ranges::find(all, std::string_view("scalar"), &Kernels::name);
  ASSERT_NE(scalar, all.end());
  EXPECT_ANY_THROW(tensors.check(p)) << "nothing was written";
  scalar->variants()[0].run(p, stream);
  EXPECT_NO_THROW(tensors.check(p));
  EXPECT_ANY_THROW(tensors.check(tensors.problem(true))) << "it is not causal";
  EXPECT_ANY_THROW(tensors.check(tensors.problem(false, large_scale))) << "another scale";
  const ps::Place place = gpu.place();
  auto* const out = static_cast<std::byte*>(p.out);
  ps::fill({out + 2 * 1000, 2, place}, 0xff, stream);
  EXPECT_ANY_THROW(tensors.check(p)) << "an element is missing";
  scalar->variants()[0].run(p, stream);
  ps::fill({out - 2, 2, place}, 0, stream);
  EXPECT_ANY_THROW(tensors.check(p)) << "something was written before the result";
}

TEST_F(AttentionLadder, TracedKernelsAreRightAndShowEveryRole) {
  const ps::Stream stream(gpu);
  const Tensors tensors(stream, {32, 1024}, ps::DType::bf16);
  const Problem p = tensors.problem(false);
  std::size_t traces = 0;
  for (const Kernels& kernels : ladder::attention::all_kernels()) {
    if (!runs_here(kernels) || kernels.traced == nullptr) continue;
    SCOPED_TRACE(kernels.name);
    const ladder::attention::Traced traced = kernels.traced();
    const auto launch = [&](const ps::kit::TraceBuffer<true>& buffer) {
      tensors.poison();
      traced.run(p, stream, buffer);
    };
    ps::test::expect_every_role(
        {.name = traced.name, .roles = traced.roles, .room = traced.room, .launch = launch},
        stream);
    EXPECT_NO_THROW(tensors.check(p));
    ++traces;
  }
  EXPECT_EQ(traces, gpu.capabilities().compute_major == 9 ? 1u : 0u);
}

TEST_F(AttentionLadder, IsClimbed) {
  const ps::test::TemporaryDirectory folder;
  ladder::Context context({.device = gpu, .quick = true, .trace = folder.path().string()});
  std::vector<ladder::Rung> rungs = ladder::rungs();
  std::erase_if(rungs, [](const ladder::Rung& rung) { return rung.ladder != "attention"; });
  for (const auto& [rung, rows] : climb(context, rungs, [](const auto&, double) {})) {
    ASSERT_FALSE(rows.empty()) << rung.name;
    std::size_t number = 0;
    for (const ladder::Row& row : rows) {
      if (row.label == "-") continue;  // not on this GPU
      EXPECT_EQ(row.number, number++) << rung.name << ": " << row.label;
      EXPECT_GT(row.seconds, 0) << rung.name << ": " << row.label;
      EXPECT_GT(row.flops, 0) << rung.name << ": " << row.label;
    }
  }
  EXPECT_EQ(std::filesystem::exists(folder.path() / "attention_persistent.json"),
            gpu.capabilities().compute_major == 9);
}

// As --counters starts the program under ncu.
TEST_F(AttentionLadder, OneRowIsProfiledAlone) {
  std::vector<ladder::Rung> rungs = ladder::rungs();
  std::erase_if(rungs, [](const ladder::Rung& rung) {
    return rung.ladder != "attention" || rung.name != "double-buffered";
  });
  ASSERT_EQ(rungs.size(), 1u);
  const auto climb_for = [&](std::size_t row) {
    ladder::Context context({.device = gpu, .quick = true, .profile_row = row});
    climb(context, rungs, [](const auto&, double) {});
  };
  EXPECT_THROW(climb_for(0), ladder::Profiled);
  EXPECT_THROW(climb_for(3), ladder::Profiled);
  EXPECT_NO_THROW(climb_for(4)) << "there is no such row";
}

// For compute-sanitizer (scripts/gpu_check.sh), whose racecheck cannot follow Hopper's
// instructions, and whose synccheck not the pipeline of a block.
bool is_pipeline(const Kernels& kernels) { return kernels.name == "pipeline"; }

TEST_F(AttentionLadder, SmallSizesWithoutHopper) {
  expect_right_if({2, 200}, [](const Kernels& kernels) {
    return !kernels.hopper && !is_pipeline(kernels) && kernels.name != "library";
  });
}

TEST_F(AttentionLadder, SmallSizesOfPipelines) { expect_right_if({2, 200}, is_pipeline); }

TEST_F(AttentionLadder, SmallSizesOnHopper) {
  expect_right_if({2, 300}, [](const Kernels& kernels) { return kernels.hopper; });
}

}  // namespace
