#include <gtest/gtest.h>

#include <vector>

#include "ops/resample/arguments.h"
#include "ops/resample/cpu.h"
#include "penstock/ops/resample.h"
#include "support/resample_random.h"
#include "support/sanitized.h"

namespace ps::test {
namespace {

TEST(Resample, AgreesWithAPlainSearch) {
  const Stream stream(Device::cpu());
  for (std::uint32_t seed = 1; seed <= random_cases(5000); ++seed) {
    RandomResample call(seed);
    resample(call.options(), stream);
    stream.synchronize();
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

// What a row holds does not depend on which rows a thread makes, nor on the instructions.
TEST(Resample, GivesTheSameBitsHoweverItIsDivided) {
  const Stream stream(Device::cpu());
  for (std::uint32_t seed = 1; seed <= random_cases(1000); ++seed) {
    RandomResample whole(seed), parts(seed);
    resample(whole.options(), stream);
    stream.synchronize();
    const detail::ResampleWork work = resampling::checked(parts.options(), Device::cpu());
    const auto end = static_cast<std::size_t>(work.episodes * work.targets);
    const std::size_t length = 1 + seed % 7;
    for (std::size_t begin = 0; begin < end; begin += length) {
      const resampling::RowKernels rows = resampling::row_kernels(work.type);
      resampling::resample_range(work, rows, begin, std::min(end, begin + length));
    }
    ASSERT_EQ(parts.wrong(), "") << "with seed " << seed;
    ASSERT_EQ(parts.out().bytes(), whole.out().bytes()) << "with seed " << seed;

    RandomResample again(seed);
    resample(again.options(), stream);
    stream.synchronize();
    ASSERT_EQ(again.out().bytes(), whole.out().bytes()) << "with seed " << seed;
  }
}

TEST(Resample, ByPlainInstructionsToo) {
  for (std::uint32_t seed = 1; seed <= random_cases(1000); ++seed) {
    RandomResample call(seed);
    const detail::ResampleWork work = resampling::checked(call.options(), Device::cpu());
    const auto end = static_cast<std::size_t>(work.episodes * work.targets);
    if (end == 0) continue;
    resampling::resample_range(work, resampling::baseline_rows(work.type), 0, end);
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

}  // namespace
}  // namespace ps::test
