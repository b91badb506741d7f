// Which work the rungs of the resample ladder leave to another kernel, and how that is said.
#include <gtest/gtest.h>

#include <cstddef>

#include "resample/support/work.h"

namespace {

using ladder::resample::any_row_bytes;
using ladder::resample::Kernel;
using ladder::resample::why_left;
using ladder::resample::Work;

struct ResampleLeft : testing::Test {
  alignas(16) std::byte memory[32] = {};
  Work work{
      .values = memory, .out = memory + 16, .type = ps::DType::f32, .samples = 100, .columns = 64};
};

TEST_F(ResampleLeft, RowsOfWholeVectorsAreRun) {
  EXPECT_EQ(why_left(work, any_row_bytes), "");
  EXPECT_EQ(why_left(work, 256), "");
}

TEST_F(ResampleLeft, OtherRowsAreLeftToTheWarpsThatSearch) {
  work.columns = 14;
  EXPECT_EQ(why_left(work, any_row_bytes), "rows of 56 bytes are not a multiple of 16");
  work.columns = 68;
  EXPECT_EQ(why_left(work, 256), "rows of 272 bytes exceed 256");
  work.columns = 64;
  work.out = memory + 8;
  EXPECT_NE(why_left(work, any_row_bytes).find("not aligned to 16 bytes"), std::string::npos);
  work.samples = 0;
  EXPECT_EQ(why_left(work, any_row_bytes), "there are no samples");
}

TEST_F(ResampleLeft, AKernelForAnyRowsLeavesNone) {
  work.columns = 14;
  EXPECT_EQ(why_left(Kernel{.label = "any"}, work), "");
  EXPECT_NE(why_left(Kernel{.label = "vectors", .most_row_bytes = any_row_bytes}, work), "");
}

}  // namespace
