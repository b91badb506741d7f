// The kernels of the CPU's matrix product, with every instruction set that this CPU has.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/cpu_product.h"
#include "support/elements.h"

namespace ps::test {
namespace {

using detail::InstructionSet;
using detail::ProductBlock;
using detail::ProductKernel;

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::baseline:
      return "baseline";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::avx512:
      return "avx512";
    case InstructionSet::avx512_bf16:
      return "avx512_bf16";
    case InstructionSet::amx:
      break;
  }
  return "amx";
}

// Vectors of random numbers of a type, `padding` elements apart.
struct Vectors {
  std::size_t depth;
  std::vector<double> numbers;
  Elements elements;
  std::vector<const std::byte*> pointers;

  Vectors(std::size_t count, std::size_t of_depth, std::size_t padding, DType type,
          std::mt19937& random)
      : depth(of_depth), elements(type, count * (of_depth + padding)) {
    std::normal_distribution<double> normal;
    for (std::size_t i = 0; i < elements.size(); ++i) elements.set_bits(i, encoded(NAN, type));
    for (std::size_t v = 0; v < count; ++v) {
      for (std::size_t k = 0; k < depth; ++k) {
        numbers.push_back(rounded(normal(random), type));
        elements.set(v * (depth + padding) + k, numbers.back());
      }
      pointers.push_back(static_cast<const std::byte*>(elements.data()) +
                         v * (depth + padding) * size_of(type));
    }
  }
};

using SetAndType = std::tuple<InstructionSet, DType>;

class CpuProduct : public testing::TestWithParam<SetAndType> {
 protected:
  void SetUp() override {
    kernel = detail::product_kernel(std::get<0>(GetParam()), type);
    if (kernel == nullptr) {
      GTEST_SKIP() << "this CPU or compiler has no " << name_of(std::get<0>(GetParam()));
    }
  }

  // "" if every sum is within the error of f32 sums of its products.
  std::string wrong_product(std::size_t rows, std::size_t columns, std::size_t depth,
                            std::size_t padding) const {
    std::mt19937 random(static_cast<std::uint32_t>(rows + 100 * columns + 10000 * depth));
    const Vectors a(rows, depth, padding, type, random), b(columns, depth, padding, type, random);
    ProductBlock block(type, *kernel);
    block.set_rows(a.pointers, depth);
    block.multiply({.first = b.pointers});
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        double wanted = 0, size = 0;
        for (std::size_t k = 0; k < depth; ++k) {
          const double product = a.numbers[r * depth + k] * b.numbers[c * depth + k];
          wanted += product;
          size += std::abs(product);
        }
        const double most = size * std::ldexp(1.0, -24) * (8 + static_cast<double>(depth) / 4);
        if (std::abs(block.sums(r)[c] - wanted) <= most) continue;  // never for NaN
        return "(" + std::to_string(r) + ", " + std::to_string(c) + ") is " +
               std::to_string(block.sums(r)[c]) + ", not " + std::to_string(wanted);
      }
    }
    return "";
  }

  const DType type = std::get<1>(GetParam());
  const ProductKernel* kernel = nullptr;
};

TEST_P(CpuProduct, AgreesWithASumInF64) {
  for (const std::size_t rows : {1, 2, 3, 5, 6, 7, 12, 15, 16, 17, 31, 32, 33, 49, 128}) {
    EXPECT_EQ(wrong_product(rows, 64, 96, 8), "") << rows << " rows";
  }
  for (const std::size_t columns :
       {1, 2, 3, 4, 5, 8, 15, 16, 17, 24, 31, 32, 33, 48, 63, 127, 128}) {
    EXPECT_EQ(wrong_product(7, columns, 64, 0), "") << columns << " columns";
  }
  for (const std::size_t depth : {1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 63, 100, 1000}) {
    EXPECT_EQ(wrong_product(9, 36, depth, 1), "") << "a depth of " << depth;
  }
}

// Whatever other rows and columns are computed with them, and whether columns are contiguous.
TEST_P(CpuProduct, GivesRowsAndColumnsTheSameBitsInAnyBlock) {
  constexpr std::size_t rows = 70, columns = 61;
  for (const std::size_t depth : {72, 256}) {
    std::mt19937 random(1);
    const Vectors a(rows, depth, 8, type, random), b(columns, depth, 0, type, random);
    ProductBlock all(type, *kernel);
    all.set_rows(a.pointers, depth);
    all.multiply({.first = b.pointers});
    ProductBlock some(type, *kernel);
    for (std::size_t round = 0; round < 40; ++round) {
      const std::size_t row = random() % rows, column = random() % columns;
      const std::size_t height = 1 + random() % (rows - row);
      const std::size_t width = 1 + random() % (columns - column);
      some.set_rows(std::span(a.pointers).subspan(row, height), depth);
      some.multiply({.first = std::span(b.pointers).subspan(column, width)});
      for (std::size_t r = 0; r < height; ++r) {
        ASSERT_EQ(0, std::memcmp(some.sums(r), all.sums(row + r) + column, width * sizeof(float)))
            << height << " rows and " << width << " columns from (" << row << ", " << column << ")";
      }
    }
    Elements transposed(type, depth * columns);
    std::vector<const std::byte*> first;
    for (std::size_t c = 0; c < columns; ++c) {
      first.push_back(static_cast<const std::byte*>(transposed.data()) + c * size_of(type));
      for (std::size_t k = 0; k < depth; ++k) {
        transposed.set(k * columns + c, b.numbers[c * depth + k]);
      }
    }
    some.set_rows(a.pointers, depth);
    some.multiply({.first = first, .stride = columns});
    for (std::size_t r = 0; r < rows; ++r) {
      ASSERT_EQ(0, std::memcmp(some.sums(r), all.sums(r), columns * sizeof(float))) << r;
    }
    std::vector<const std::byte*> alternating;  // the even ones, then the odd ones
    for (std::size_t c = 0; c < columns; c += 2) alternating.push_back(first[c]);
    for (std::size_t c = 1; c < columns; c += 2) alternating.push_back(first[c]);
    some.multiply({.first = alternating, .stride = columns});
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        const std::size_t at = c % 2 == 0 ? c / 2 : (columns + c) / 2;
        ASSERT_EQ(0, std::memcmp(some.sums(r) + at, all.sums(r) + c, sizeof(float))) << r << c;
      }
    }
  }
}

// A NaN or infinity stays in its row and column.
TEST_P(CpuProduct, KeepsRowsAndColumnsApart) {
  std::mt19937 random(2);
  Vectors a(20, 40, 0, type, random), b(20, 40, 0, type, random);
  a.elements.set_bits(3 * 40 + 5, encoded(NAN, type));
  b.elements.set_bits(17 * 40 + 39, encoded(INFINITY, type));
  ProductBlock block(type, *kernel);
  block.set_rows(a.pointers, 40);
  block.multiply({.first = b.pointers});
  for (std::size_t r = 0; r < 20; ++r) {
    for (std::size_t c = 0; c < 20; ++c) {
      EXPECT_EQ(std::isfinite(block.sums(r)[c]), r != 3 && c != 17) << r << ", " << c;
    }
  }
}

std::string test_name(const testing::TestParamInfo<SetAndType>& of) {
  const DType type = std::get<1>(of.param);
  return std::string(name_of(std::get<0>(of.param))) + (type == DType::f32   ? "_f32"
                                                        : type == DType::f16 ? "_f16"
                                                                             : "_bf16");
}

INSTANTIATE_TEST_SUITE_P(Generic, CpuProduct,
                         testing::Combine(testing::Values(InstructionSet::baseline,
                                                          InstructionSet::avx2,
                                                          InstructionSet::avx512),
                                          testing::Values(DType::f32, DType::f16, DType::bf16)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(OfBf16, CpuProduct,
                         testing::Combine(testing::Values(InstructionSet::avx512_bf16,
                                                          InstructionSet::amx),
                                          testing::Values(DType::bf16)),
                         test_name);

}  // namespace
}  // namespace ps::test
