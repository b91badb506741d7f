// What compress() and decompress() promise of the data, on the CPU.
#include "penstock/ops/compress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "penstock/base/error.h"
#include "support/bf16_values.h"
#include "support/guarded_memory.h"

namespace ps::test {
namespace {

constexpr std::size_t compress_sizes[] = {0,    1,    2,    7,    8,    9,    255,  256,  257,
                                          511,  512,  513,  2047, 3000, 4095, 4096, 4097, 4607,
                                          4608, 4609, 8191, 8192, 8193, 9001, 20000};

double compressed_share(Values kind, std::size_t count) {
  RandomValues random(1);
  const Bf16s values = random.many(kind, count);
  return static_cast<double>(compressed(values).size()) / (2.0 * static_cast<double>(count));
}

TEST(Compress, GivesBackTheBitsOfAnySize) {
  RandomValues random(2);
  for (const Values kind : all_values) {
    for (const std::size_t size : compress_sizes) {
      const Bf16s values = random.many(kind, size);
      ASSERT_EQ(decompressed(compressed(values), size), values)
          << size << " values of kind " << static_cast<int>(kind);
    }
  }
}

TEST(Compress, GivesBackEveryBitPattern) {
  Bf16s values(65536);
  std::iota(values.begin(), values.end(), 0);
  EXPECT_EQ(decompressed(compressed(values), values.size()), values) << "in order";
  std::shuffle(values.begin(), values.end(), std::mt19937(3));
  EXPECT_EQ(decompressed(compressed(values), values.size()), values) << "shuffled, seed 3";
}

// NaN payloads, infinities, denormals and zeros, rare among normal weights and common.
TEST(Compress, GivesBackSpecialValues) {
  const Bf16s special = {0x0000, 0x8000, 0x0001, 0x807F, 0x7F80, 0xFF80, 0x7F81,
                         0x7FC0, 0xFFC1, 0xFFFF, 0x7FFF, 0x7F7F, 0xFF7F, 0x0080};
  for (const unsigned every : {1U, 2U, 10U, 1000U}) {
    RandomValues random(every);
    Bf16s values = random.many(Values::normal, 10000);
    for (std::uint16_t& value : values) {
      if (random.bits() % every == 0) value = special[random.bits() % special.size()];
    }
    EXPECT_EQ(decompressed(compressed(values), values.size()), values) << "one in " << every;
  }
}

TEST(Compress, ManySegmentsOnAllCores) {
  RandomValues random(4);
  Bf16s values = random.many(Values::normal, 700001);
  // Stored segments between coded ones.
  for (std::size_t i = 100000; i < 130000; ++i) values[i] = random.one(Values::any_bits);
  const std::vector<std::uint8_t> bytes = compressed(values);
  EXPECT_EQ(compressed(values), bytes) << "the same values gave other bytes";
  EXPECT_EQ(decompressed(bytes, values.size()), values);
}

TEST(Compress, SizeOfWeights) {
  EXPECT_LE(compressed_share(Values::normal, 1 << 20), 0.672);
  EXPECT_LE(compressed_share(Values::student_t5, 1 << 20), 0.683);
  EXPECT_LE(compressed_share(Values::uniform, 1 << 20), 0.659);
  EXPECT_LE(compressed_share(Values::equal, 1 << 20), 0.629);
}

// A scale per row, as of quantised or normalised matrices, costs nothing: segments have common
// exponents of their own.
TEST(Compress, SizeOfRowsWithDifferentScales) {
  RandomValues random(5);
  Bf16s values = random.many(Values::normal, 64 * 4096);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::uint16_t>(values[i] - (i / 4096 % 16 << 7));  // times a power of 2
  }
  const double bytes = static_cast<double>(compressed(values).size());
  EXPECT_LE(bytes / (2.0 * static_cast<double>(values.size())), 0.675);
}

TEST(Compress, NeverExceedsTheLimit) {
  RandomValues random(6);
  for (const std::size_t size : compress_sizes) {
    const std::size_t limit = compressed_bytes_limit(static_cast<std::int64_t>(size));
    for (const Values kind : all_values) {
      EXPECT_LE(compressed(random.many(kind, size)).size(), limit) << size;
    }
    EXPECT_LE(limit, 2 * size + 96 + size / 200) << size;
  }
  EXPECT_LE(compressed_share(Values::any_bits, 1 << 20), 1.003);
  EXPECT_EQ(compressed_bytes_limit(0), 32U);
}

TEST(Compress, WritesOnlyWhatItReturns) {
  RandomValues random(7);
  for (const std::size_t size : compress_sizes) {
    Bf16s values = random.many(Values::normal, size);
    const std::size_t bytes = compressed(values).size();
    GuardedMemory room(bytes), back(2 * size);
    const MemoryView memory = room.view(), values_memory = back.view();
    const auto out = [&](std::size_t count) {
      return TensorView(memory.data, DType::u8, {static_cast<std::int64_t>(count)});
    };
    EXPECT_EQ(compress({.x = values_view(values), .out = out(bytes)}), bytes);
    EXPECT_TRUE(room.surroundings_untouched()) << size;
    const Stream stream(Device::cpu());
    decompress(
        {.compressed = out(bytes),
         .out = TensorView(values_memory.data, DType::bf16, {static_cast<std::int64_t>(size)})},
        stream);
    stream.synchronize();
    EXPECT_TRUE(back.surroundings_untouched()) << size;
    EXPECT_TRUE(std::equal(values.begin(), values.end(), values_memory.as<std::uint16_t>()));
  }
}

TEST(Compress, KnowsItsElementsAndBytes) {
  RandomValues random(8);
  for (const std::size_t size : compress_sizes) {
    std::vector<std::uint8_t> bytes = compressed(random.many(Values::normal, size));
    const std::size_t exact = bytes.size();
    bytes.resize(exact + 77, 0xEE);  // what follows does not matter
    const CompressedInfo info = compressed_info(ExactBytes(bytes).view());
    EXPECT_EQ(info.elements, static_cast<std::int64_t>(size));
    EXPECT_EQ(info.bytes, exact);
  }
}

TEST(Compress, TakesAnyShapeAndRoomAfterTheData) {
  RandomValues random(9);
  Bf16s values = random.many(Values::normal, 3 * 5 * 700);
  const ExactBytes room(compressed_bytes_limit(3 * 5 * 700) + 1000);
  compress({.x = TensorView(values.data(), DType::bf16, {3, 5, 700}), .out = room.view()});
  const ExactBytes back(2 * values.size());
  const Stream stream(Device::cpu());
  decompress({.compressed = room.view(), .out = TensorView(back.data(), DType::bf16, {15, 700})},
             stream);
  stream.synchronize();
  EXPECT_EQ(std::memcmp(back.data(), values.data(), back.size()), 0);
}

// Files and packed weights hold these bytes: other ones need another version in the header.
TEST(Compress, TheFormatIsFixed) {
  const auto sum_of = [](Values kind) {
    RandomValues random(10);
    std::uint64_t sum = 0xCBF29CE484222325;
    for (const std::uint8_t byte : compressed(random.many(kind, 9001))) {
      sum = (sum ^ byte) * 0x100000001B3;
    }
    return sum;
  };
  EXPECT_EQ(sum_of(Values::many_exponents), 17904383989515067703U);
  EXPECT_EQ(sum_of(Values::any_bits), 564678561463108354U);
}

}  // namespace
}  // namespace ps::test
