#include "penstock/base/view.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace {

// Any value of the underlying type may come out of a file.
ps::DType dtype_numbered(std::uint8_t number) { return static_cast<ps::DType>(number); }

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

TEST(DType, NamesAndSizesRoundTrip) {
  for (const auto type : {ps::DType::f64, ps::DType::f32, ps::DType::f16, ps::DType::bf16,
                          ps::DType::i64, ps::DType::i32, ps::DType::u8, ps::DType::boolean}) {
    EXPECT_EQ(ps::parse_dtype(ps::name(type)), type);
    EXPECT_GT(ps::size_of(type), 0U);
  }
  EXPECT_EQ(ps::size_of(ps::DType::bf16), 2U);
  EXPECT_TRUE(ps::is_floating(ps::DType::bf16));
  EXPECT_FALSE(ps::is_floating(ps::DType::boolean));
  EXPECT_EQ(ps::name(dtype_numbered(99)), "unknown");
  EXPECT_THROW(ps::parse_dtype("float"), ps::InvalidArgument);
}

TEST(Checked, OverflowThrowsAndNamesTheArgument) {
  EXPECT_EQ(ps::checked_mul(3, 4, "x"), 12U);
  const std::size_t big = std::size_t{1} << 40;
  try {
    ps::checked_mul(big, big, "bytes");
    FAIL() << "no error";
  } catch (const ps::InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "bytes");
  }
  EXPECT_THROW(ps::checked_add(~std::size_t{0}, 1, "x"), ps::InvalidArgument);
  EXPECT_THROW(ps::align_up(~std::size_t{0} - 1, 256, "x"), ps::InvalidArgument);
  EXPECT_EQ(ps::align_up(257, 256, "x"), 512U);
  EXPECT_EQ(ps::ceil_div(~std::size_t{0}, 2), (~std::size_t{0}) / 2 + 1);
}

TEST(MemoryView, SubViewsStayInside) {
  std::array<std::byte, 16> bytes{};
  const ps::MemoryView view{bytes.data(), bytes.size(), {}};
  EXPECT_EQ(view.sub(4, 12).data, bytes.data() + 4);
  EXPECT_EQ(view.sub(16, 0).bytes, 0U);
  EXPECT_THROW(view.sub(4, 13), ps::InvalidArgument);
  EXPECT_THROW(view.sub(17, 0), ps::InvalidArgument);
  EXPECT_THROW(view.sub(1, ~std::size_t{0}), ps::InvalidArgument);
}

TEST(TensorView, ContiguousStridesAndBytes) {
  std::vector<float> data(24);
  const ps::TensorView view(data.data(), ps::DType::f32, {2, 3, 4});
  EXPECT_EQ(view.rank(), 3U);
  EXPECT_EQ(view.elements(), 24);
  EXPECT_EQ(view.bytes(), 96U);
  EXPECT_EQ(view.strides()[0], 12);
  EXPECT_EQ(view.strides()[2], 1);
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_EQ(view.memory().bytes, 96U);
  EXPECT_EQ(view.describe(), "f32[2, 3, 4] on host");
  EXPECT_THROW(view.extent(3), ps::InvalidArgument);
}

TEST(TensorView, StridedViewsAreNotContiguous) {
  std::vector<float> data(24);
  const std::array<std::int64_t, 2> shape{3, 4}, transposed{1, 3}, broadcast{0, 1}, padded{8, 1};
  for (const auto& strides : {transposed, broadcast, padded}) {
    const ps::TensorView view(data.data(), ps::DType::f32, shape, strides);
    EXPECT_FALSE(view.is_contiguous());
    EXPECT_THROW(view.memory(), ps::InvalidArgument);
  }
  // A stride along an extent of 1 is never used.
  const std::array<std::int64_t, 2> row{1, 4}, odd{999, 1};
  EXPECT_TRUE(ps::TensorView(data.data(), ps::DType::f32, row, odd).is_contiguous());
}

TEST(TensorView, EmptyAndScalar) {
  const ps::TensorView empty(nullptr, ps::DType::f32, {0, huge, huge});
  EXPECT_EQ(empty.elements(), 0);
  EXPECT_EQ(empty.bytes(), 0U);
  EXPECT_TRUE(empty.is_contiguous());
  double value = 0;
  const ps::TensorView scalar(&value, ps::DType::f64, std::initializer_list<std::int64_t>{});
  EXPECT_EQ(scalar.rank(), 0U);
  EXPECT_EQ(scalar.elements(), 1);
}

TEST(TensorView, RefusesWhatCannotBe) {
  float value = 0;
  EXPECT_THROW(ps::TensorView(&value, ps::DType::f32, {-1}), ps::InvalidArgument);
  EXPECT_THROW(ps::TensorView(&value, ps::DType::f32, {huge}), ps::InvalidArgument);
  EXPECT_THROW(ps::TensorView(&value, ps::DType::u8, {huge, 2}), ps::InvalidArgument);
  EXPECT_THROW(ps::TensorView(nullptr, ps::DType::f32, {1}), ps::InvalidArgument);
  EXPECT_THROW(ps::TensorView(&value, ps::DType::f32, {1, 1, 1, 1, 1, 1, 1, 1, 1}),
               ps::InvalidArgument);
  EXPECT_THROW(ps::TensorView(&value, dtype_numbered(77), {1}), ps::InvalidArgument);
  const std::array<std::int64_t, 2> shape{2, 2}, far{huge, 1};
  EXPECT_THROW(ps::TensorView(&value, ps::DType::f32, shape, far), ps::InvalidArgument);
  const std::array<std::int64_t, 1> few{1};
  EXPECT_THROW(ps::TensorView(&value, ps::DType::f32, shape, few), ps::InvalidArgument);
}

}  // namespace
