// How the CPU resamples: places found by counting, and rows that pass by the caches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ops/resample/plan.h"
#include "penstock/base/units.h"
#include "penstock/ops/resample.h"

namespace ps::test {
namespace {

using namespace resampling;

template <class T>
class ResamplePlaces : public testing::Test {
 protected:
  // Few different ones, so that some are the same; now and then beyond all numbers.
  T time() {
    if constexpr (!std::is_integral_v<T>) {
      if (random() % 40 == 0) return std::numeric_limits<T>::infinity() * (random() % 2 ? 1 : -1);
      return static_cast<T>(static_cast<double>(random() % 90) / 7);
    } else {
      if (random() % 40 == 0) return random() % 2 ? std::numeric_limits<T>::max() : T{-1} << 62;
      return static_cast<T>(random() % 90);
    }
  }
  std::mt19937 random{20261116};
};

using TimeTypes = testing::Types<float, double, std::int64_t>;
TYPED_TEST_SUITE(ResamplePlaces, TimeTypes);

TYPED_TEST(ResamplePlaces, AreThoseOfASearch) {
  using T = TypeParam;
  for (int round = 0; round < 4000; ++round) {
    const auto count = static_cast<std::int64_t>(this->random() % 70);
    const std::int64_t stride = this->random() % 4 == 0 ? 3 : 1;
    std::vector<T> sorted(static_cast<std::size_t>(count));
    for (T& each : sorted) each = this->time();
    std::sort(sorted.begin(), sorted.end());
    std::vector<T> all(static_cast<std::size_t>(count * stride));
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      all[i * static_cast<std::size_t>(stride)] = sorted[i];
    }
    const Times<T> times{all.data(), stride, count};
    const bool line = this->random() % 2 == 0;
    std::int64_t hint = 0;
    for (int k = 0; k < 8; ++k) {
      const T t = this->time();
      const Found found = find(times, t, hint, line);
      const Located wanted = locate(times, t, 0, line);
      ASSERT_EQ(found.at.where, wanted.where);
      ASSERT_EQ(found.at.earlier, wanted.earlier);
      ASSERT_EQ(found.at.later, wanted.later);
      if (found.weight > 0) {
        const Pick picked = pick(wanted, times, t, Interpolation::linear, Outside::clamp);
        ASSERT_EQ(picked.action, Action::blend);
        ASSERT_EQ(picked.weight, found.weight);
      }
      hint = found.at.earlier;
    }
  }
}

// Of results that are larger than the caches, beside the same in parts that are not.
TEST(ResampleCpu, ResultsPastTheCachesAreTheSame) {
  constexpr std::int64_t columns = 512, samples = 40, parts = 64;
  constexpr std::int64_t targets = static_cast<std::int64_t>(64 * MiB) / columns / 2;
  std::mt19937 random{20261117};
  std::vector<std::uint16_t> values(columns * samples);
  for (auto& each : values) each = static_cast<std::uint16_t>(0x3F00 + random() % 256);
  std::vector<float> times(samples), at(targets);
  for (auto* clock : {&times, &at}) {
    for (float& each : *clock) each = static_cast<float>(random() % 100000);
    std::sort(clock->begin(), clock->end());
  }
  const Stream stream(Device::cpu());
  const auto made = [&](std::int64_t first, std::int64_t count, std::uint16_t* out) {
    resample({.sensors = {{.values = {values.data(), DType::bf16, {1, samples, columns}},
                           .times = {times.data(), DType::f32, {samples}}}},
              .at = {at.data() + first, DType::f32, {count}},
              .out = {out, DType::bf16, {1, count, columns}}},
             stream);
  };
  std::vector<std::uint16_t> whole(columns * targets, 0xFFFF), apart(whole);
  made(0, targets, whole.data());
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::int64_t first = i * (targets / parts);
    made(first, targets / parts, apart.data() + first * columns);
  }
  stream.synchronize();
  EXPECT_TRUE(whole == apart);
}

}  // namespace
}  // namespace ps::test
