// The rows of the CPU's resampling, in vectors and one by one: the same bits, of every length and
// at every address.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "ops/resample/rows.h"
#include "support/elements.h"

namespace ps::test {
namespace {

using resampling::RowKernels;

constexpr std::size_t most = 75;
constexpr DType row_types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

// Bytes around a row keep this.
constexpr std::uint8_t untouched = 0xA5;

class Row {
 public:
  Row(std::size_t bytes, std::size_t offset)
      : offset_(64 + offset), bytes_(bytes + 192, untouched) {}
  void* data() { return bytes_.data() + offset_; }
  const std::vector<std::uint8_t>& all() const { return bytes_; }

 private:
  std::size_t offset_;
  std::vector<std::uint8_t> bytes_;
};

std::uint64_t random_bits(std::mt19937& random, DType type) {
  const double x = (static_cast<double>(random()) / 4294967296.0 - 0.5) * 8;
  if (random() % 16 == 0) return type == DType::f64 ? 0 : encoded(INFINITY, type);
  return type == DType::f64 ? std::bit_cast<std::uint64_t>(x) : encoded(rounded(x, type), type);
}

Row random_row(std::mt19937& random, DType type, std::size_t count, std::size_t offset) {
  const std::size_t size = size_of(type);
  Row row(count * size, offset * size);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random_bits(random, type);
    std::memcpy(static_cast<std::uint8_t*>(row.data()) + i * size, &bits, size);
  }
  return row;
}

bool is_nan(const std::uint8_t* at, DType type) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, size_of(type));
  return type == DType::f64 ? std::isnan(std::bit_cast<double>(bits))
                            : std::isnan(decoded(static_cast<std::uint32_t>(bits), type));
}

// Which NaN it is, is not promised.
void expect_same(Row& a, Row& b, std::size_t count, DType type) {
  const std::size_t size = size_of(type);
  for (std::size_t i = 0; i < count; ++i) {
    auto *x = static_cast<std::uint8_t*>(a.data()) + i * size,
         *y = static_cast<std::uint8_t*>(b.data()) + i * size;
    if (is_nan(x, type) && is_nan(y, type)) std::memcpy(x, y, size);
  }
  ASSERT_EQ(a.all(), b.all()) << name(type) << ", " << count << " elements";
}

class ResampleRows : public testing::Test {
 protected:
  void SetUp() override {
    if (resampling::avx2_rows(DType::f32).blend == nullptr) GTEST_SKIP() << "this CPU has no AVX2";
  }
  std::mt19937 random{20261115};
};

TEST_F(ResampleRows, BlendToTheSameBits) {
  for (const DType type : row_types) {
    const RowKernels plain = resampling::baseline_rows(type), fast = resampling::avx2_rows(type);
    for (std::size_t count = 0; count < most; ++count) {
      for (const double w : {0.25, 0.1, 1e-9, 1 - 1e-12, -3.7, 1e30, std::nan("")}) {
        const std::size_t offset = random() % 17;
        Row x = random_row(random, type, count, offset), y = random_row(random, type, count, 3);
        const std::size_t size = size_of(type);
        Row a(count * size, offset * size), b(count * size, offset * size);
        plain.blend({a.data(), x.data(), y.data(), w, x.data(), y.data()}, count);
        fast.blend({b.data(), x.data(), y.data(), w, y.data(), x.data()}, count);
        expect_same(a, b, count, type);
      }
    }
  }
}

TEST_F(ResampleRows, BlendPastTheCachesToTheSameBits) {
  constexpr std::size_t aligned = resampling::past_alignment;
  for (const DType type : row_types) {
    const std::size_t size = size_of(type);
    const RowKernels plain = resampling::baseline_rows(type), fast = resampling::avx2_rows(type);
    for (std::size_t bytes = 0; bytes <= 10 * aligned; bytes += aligned) {
      const std::size_t count = bytes / size;
      Row x = random_row(random, type, count, 1), y = random_row(random, type, count, 3);
      Row a(bytes, 0), b = a;
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % aligned, 0);
      plain.blend({a.data(), x.data(), y.data(), 0.3, x.data(), y.data()}, count);
      fast.blend_past({b.data(), x.data(), y.data(), 0.3, x.data(), y.data()}, count);
      fast.settle();
      expect_same(a, b, count, type);
    }
  }
}

TEST_F(ResampleRows, SumToTheSameBits) {
  for (const DType type : row_types) {
    const RowKernels plain = resampling::baseline_rows(type), fast = resampling::avx2_rows(type);
    const DType sum_type = size_of(type) == 2 ? DType::f32 : DType::f64;
    for (std::size_t count = 0; count < most; ++count) {
      Row a = random_row(random, sum_type, count, 0), b = a;
      for (const double w : {0.25, 0.1, 1.0, -3.7}) {
        Row g = random_row(random, type, count, random() % 17);
        plain.add(a.data(), g.data(), w, count);
        fast.add(b.data(), g.data(), w, count);
        expect_same(a, b, count, sum_type);
      }
      Row x(count * size_of(type), 0), y(count * size_of(type), 0);
      plain.round(x.data(), a.data(), count);
      fast.round(y.data(), b.data(), count);
      expect_same(x, y, count, type);
    }
  }
}

TEST_F(ResampleRows, AreNoneForIntegers) {
  for (const DType type : {DType::i64, DType::i32, DType::u8, DType::boolean}) {
    EXPECT_EQ(resampling::row_kernels(type).blend, nullptr);
  }
}

}  // namespace
}  // namespace ps::test
