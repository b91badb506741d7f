// decompress() on a GPU: the bits of the CPU, for good data and damaged data alike.
#include "penstock/ops/compress.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "gpu/copies.h"
#include "gpu/gpu_test.h"
#include "gpu/recording.h"
#include "ops/compress/format.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "support/bf16_values.h"

namespace ps::test {
namespace {

class CompressGpu : public GpuTest {
 protected:
  static constexpr std::size_t margin = 64;  // bytes that nobody may write, on both sides
  static constexpr std::uint8_t guard = 0xA5;

  static TensorView bytes_view(const MemoryView& memory) {
    return {memory.data, DType::u8, {static_cast<std::int64_t>(memory.bytes)}, memory.place};
  }
  static TensorView out_view(const MemoryView& memory, std::size_t count) {
    return {memory.data + margin, DType::bf16, {static_cast<std::int64_t>(count)}, memory.place};
  }

  // What the GPU makes of compressed data that is in `memory` already.
  Bf16s decompressed_from(const MemoryView& memory, std::size_t count, const Stream& stream,
                          int thread_blocks = 0) const {
    const DeviceBuffer out(gpu, 2 * count + 2 * margin);
    fill(out.view(), guard, stream);
    decompress({.compressed = bytes_view(memory),
                .out = out_view(out.view(), count),
                .thread_blocks = thread_blocks},
               stream);
    const auto all = fetch<std::uint8_t>(out.view(), 0, out.bytes(), stream);
    Bf16s values(count);
    std::memcpy(values.data(), all.data() + margin, 2 * count);
    for (std::size_t i = 0; i < margin; ++i) {
      EXPECT_EQ(all[i], guard) << "byte " << i << " before the values";
      EXPECT_EQ(all[margin + 2 * count + i], guard) << "byte " << i << " after the values";
    }
    return values;
  }

  // From device memory of exactly this size.
  Bf16s decompressed_there(const std::vector<std::uint8_t>& bytes, std::size_t count,
                           int thread_blocks = 0) const {
    const Stream stream(gpu);
    const DeviceBuffer there(gpu, bytes.size());
    send(there.view(), 0, bytes, stream);
    return decompressed_from(there.view(), count, stream, thread_blocks);
  }
};

TEST_F(CompressGpu, GivesBackTheBitsOfAnySize) {
  RandomValues random(1);
  for (const Values kind : all_values) {
    for (const std::size_t size :
         {1, 2, 7, 8, 9, 255, 256, 257, 511, 512, 513, 3000, 4095, 4096, 4097, 9001, 40000}) {
      const Bf16s values = random.many(kind, size);
      ASSERT_EQ(decompressed_there(compressed(values), size), values)
          << size << " values of kind " << static_cast<int>(kind);
    }
  }
}

TEST_F(CompressGpu, GivesBackEveryBitPattern) {
  Bf16s values(65536);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i);
  EXPECT_EQ(decompressed_there(compressed(values), values.size()), values) << "in order";
  std::shuffle(values.begin(), values.end(), std::mt19937(2));
  EXPECT_EQ(decompressed_there(compressed(values), values.size()), values) << "shuffled, seed 2";
}

TEST_F(CompressGpu, ManySegments) {
  RandomValues random(3);
  Bf16s values = random.many(Values::normal, 5'000'001);
  for (std::size_t i = 100000; i < 130000; ++i) values[i] = random.one(Values::any_bits);
  EXPECT_EQ(decompressed_there(compressed(values), values.size()), values);
}

TEST_F(CompressGpu, FewThreadBlocksDoAllTheWork) {
  RandomValues random(4);
  Bf16s values = random.many(Values::normal, 300'001);
  for (std::size_t i = 10000; i < 30000; ++i) values[i] = random.one(Values::any_bits);
  const std::vector<std::uint8_t> bytes = compressed(values);
  for (const int blocks : {1, 2, 7, 1000}) {
    EXPECT_EQ(decompressed_there(bytes, values.size(), blocks), values) << blocks << " blocks";
  }
}

TEST_F(CompressGpu, ReadsPageLockedMemory) {
  RandomValues random(5);
  const Bf16s values = random.many(Values::normal, 100'003);
  const std::vector<std::uint8_t> bytes = compressed(values);
  const PinnedBuffer pinned(gpu, bytes.size());
  std::memcpy(pinned.view().data, bytes.data(), bytes.size());
  const Stream stream(gpu);
  EXPECT_EQ(decompressed_from(pinned.view(), values.size(), stream, 8), values);
}

TEST_F(CompressGpu, NothingForNoElements) {
  EXPECT_TRUE(decompressed_there(compressed({}), 0).empty());
}

// The CPU's tests say what must come out; here it must be the same.
TEST_F(CompressGpu, DamagedDataGivesTheBitsOfTheCpu) {
  RandomValues random(6);
  constexpr std::size_t count = 2 * compression::segment_values + 1300;
  const std::vector<std::uint8_t> right = compressed(random.many(Values::normal, count));
  const std::size_t header = sizeof(compression::Header);
  const std::size_t first = compression::segments_begin(count);
  for (int run = 0; run < 300; ++run) {
    std::vector<std::uint8_t> damaged = right;
    const auto flip = [&](std::size_t begin, std::size_t end) {
      const std::size_t bit = 8 * begin + random.bits() % (8 * (end - begin));
      damaged[bit / 8] = static_cast<std::uint8_t>(damaged[bit / 8] ^ 1U << bit % 8);
    };
    if (run % 5 == 0) flip(0, header);
    if (run % 5 == 1) flip(header, first);                                      // offsets
    if (run % 5 == 2) flip(first, first + sizeof(compression::SegmentHeader));  // of segment 0
    if (run % 5 == 3) {
      for (int i = 0; i < 4; ++i) flip(first, damaged.size());
    }
    if (run % 5 == 4) {
      damaged.resize(first + random.bits() % (damaged.size() - first));
      compression::Header made{.elements = count, .bytes = damaged.size()};
      made.checksum = checksum_of(made);
      std::memcpy(damaged.data(), &made, sizeof made);
    }
    ASSERT_EQ(decompressed_there(damaged, count), decompressed(damaged, count)) << "run " << run;
  }
}

TEST_F(CompressGpu, NoiseGivesTheBitsOfTheCpu) {
  RandomValues random(7);
  for (int run = 0; run < 100; ++run) {
    const std::size_t count = 1 + random.bits() % 12000;
    std::vector<std::uint8_t> noise(compression::segments_begin(count) + random.bits() % 30000);
    for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random.bits());
    compression::Header made{.elements = count, .bytes = noise.size()};
    made.checksum = checksum_of(made);
    if (run % 8 != 0) std::memcpy(noise.data(), &made, sizeof made);
    for (std::size_t s = 0; s < compression::segments_of(count); ++s) {
      const auto offset =
          static_cast<std::uint32_t>(random.bits() % (noise.size() / compression::unit + 1));
      std::memcpy(noise.data() + sizeof made + 4 * s, &offset, sizeof offset);
    }
    ASSERT_EQ(decompressed_there(noise, count), decompressed(noise, count)) << "run " << run;
  }
}

TEST_F(CompressGpu, MayBeCaptured) {
  RandomValues random(8);
  const Bf16s values = random.many(Values::normal, 50'000);
  const std::vector<std::uint8_t> bytes = compressed(values);
  const Stream stream(gpu);
  const DeviceBuffer there(gpu, bytes.size()), out(gpu, 2 * values.size() + 2 * margin);
  const DecompressOptions options{.compressed = bytes_view(there.view()),
                                  .out = out_view(out.view(), values.size())};
  send(there.view(), 0, bytes, stream);
  decompress(options, stream);  // loads the kernel
  fill(out.view(), guard, stream);
  stream.synchronize();
  Recording recording(cuda_stream(stream));
  decompress(options, stream);
  EXPECT_TRUE(recording.active());
  recording.replay(cuda_stream(stream));
  EXPECT_EQ(fetch<std::uint16_t>(out.view(), margin, values.size(), stream), values);
}

TEST_F(CompressGpu, RefusesPageableMemory) {
  const ExactBytes pageable(compressed({1, 2, 3}));
  const DeviceBuffer out(gpu, 1024);
  try {
    decompress({.compressed = pageable.view(), .out = out_view(out.view(), 3)}, Stream(gpu));
    FAIL() << "accepted memory that the GPU cannot reach";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "compressed");
  }
}

}  // namespace
}  // namespace ps::test
