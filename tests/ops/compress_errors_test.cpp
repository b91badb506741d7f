// Arguments that compress(), compressed_info() and decompress() refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include "penstock/base/error.h"
#include "penstock/ops/compress.h"
#include "support/fake_machine.h"

namespace ps::test {
namespace {

// Calls that are right. Tests spoil them.
class CompressErrors : public testing::Test {
 protected:
  static constexpr std::int64_t n = 40;

  CompressErrors() {
    packing.x = view(values.data(), DType::bf16, {n});
    packing.out = view(packed.data(), DType::u8, {static_cast<std::int64_t>(packed.size())});
    unpacking.compressed = packing.out;
    unpacking.out = view(back.data(), DType::bf16, {n});
    compress(packing);
  }

  static TensorView view(void* data, DType type, std::initializer_list<std::int64_t> shape,
                         Place place = Device::cpu().place()) {
    return {data, type, shape, place};
  }
  static TensorView strided(void* data, DType type, std::vector<std::int64_t> shape,
                            std::vector<std::int64_t> strides) {
    return {data, type, shape, strides, Device::cpu().place()};
  }

  // "argument: expected ..., got ..." of the error, or "".
  static std::string message(const std::function<void()>& call) {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.argument() + ": expected " + error.expected() + ", got " + error.given();
    }
    return "";
  }
  std::string of_compress(const std::function<void(CompressOptions&)>& spoil) const {
    CompressOptions bad = packing;
    spoil(bad);
    return message([&] { compress(bad); });
  }
  std::string of_decompress(const std::function<void(DecompressOptions&)>& spoil) const {
    DecompressOptions bad = unpacking;
    spoil(bad);
    return message([&] {
      const Stream stream(Device::cpu());
      decompress(bad, stream);
      stream.synchronize();
    });
  }

  alignas(64) std::array<std::uint16_t, 512> values{};
  alignas(64) std::array<std::uint8_t, 1024> packed{};
  alignas(64) std::array<std::uint16_t, 512> back{};
  CompressOptions packing;
  DecompressOptions unpacking;
};

TEST_F(CompressErrors, NoneWhereAllIsWell) {
  EXPECT_EQ(of_compress([](auto&) {}), "");
  EXPECT_EQ(of_decompress([](auto&) {}), "");
  EXPECT_EQ(of_decompress([](auto& o) { o.thread_blocks = 3; }), "");
}

TEST_F(CompressErrors, Types) {
  EXPECT_EQ(of_compress([&](auto& o) { o.x = view(values.data(), DType::f16, {n}); }),
            "x: expected elements of type bf16, got f16[40] on cpu");
  EXPECT_EQ(of_compress([](auto& o) { o.x = {}; }), "x: expected elements of type bf16, got none");
  EXPECT_EQ(of_compress([&](auto& o) { o.out = view(packed.data(), DType::bf16, {n}); }),
            "out: expected elements of type u8, got bf16[40] on cpu");
  EXPECT_EQ(of_decompress([&](auto& o) { o.compressed = view(packed.data(), DType::f32, {n}); }),
            "compressed: expected elements of type u8, got f32[40] on cpu");
  EXPECT_EQ(of_decompress([&](auto& o) { o.out = view(back.data(), DType::f16, {n}); }),
            "out: expected elements of type bf16, got f16[40] on cpu");
  EXPECT_EQ(message([&] { compressed_info(view(packed.data(), DType::i32, {n})); }),
            "compressed: expected elements of type u8, got i32[40] on cpu");
}

TEST_F(CompressErrors, ShapesAndStrides) {
  EXPECT_EQ(of_compress([&](auto& o) { o.x = strided(values.data(), DType::bf16, {n}, {2}); }),
            "x: expected a contiguous view, got bf16[40] on cpu with strides [2]");
  EXPECT_EQ(of_compress([&](auto& o) { o.out = view(packed.data(), DType::u8, {8, 128}); }),
            "out: expected one dimension: bytes, got u8[8, 128] on cpu");
  EXPECT_EQ(of_compress([&](auto& o) { o.out = strided(packed.data(), DType::u8, {500}, {2}); }),
            "out: expected a contiguous view, got u8[500] on cpu with strides [2]");
  EXPECT_EQ(of_decompress([&](auto& o) { o.out = strided(back.data(), DType::bf16, {n}, {2}); }),
            "out: expected a contiguous view, got bf16[40] on cpu with strides [2]");
  EXPECT_EQ(
      of_decompress([&](auto& o) { o.compressed = view(packed.data(), DType::u8, {2, 512}); }),
      "compressed: expected one dimension: bytes, got u8[2, 512] on cpu");
  EXPECT_EQ(message([&] { compressed_info(view(packed.data(), DType::u8, {2, 512})); }),
            "compressed: expected one dimension: bytes, got u8[2, 512] on cpu");
}

TEST_F(CompressErrors, Sizes) {
  packed.fill(0x5A);
  EXPECT_EQ(of_compress([&](auto& o) { o.out = view(packed.data(), DType::u8, {143}); }),
            "out: expected 144 bytes or more, got u8[143] on cpu");
  EXPECT_EQ(of_compress([](auto& o) { o.out = {}; }), "out: expected 144 bytes or more, got none");
  EXPECT_TRUE(std::all_of(packed.begin(), packed.end(), [](auto byte) { return byte == 0x5A; }))
      << "wrote although there was too little room";
  const std::int64_t many = (std::int64_t{1} << 34) + 1;
  EXPECT_EQ(of_compress([&](auto& o) { o.x = view(values.data(), DType::bf16, {many}); }),
            "x: expected 0 to 2^34 elements, got 17179869185");
  EXPECT_EQ(of_decompress([&](auto& o) { o.out = view(back.data(), DType::bf16, {many}); }),
            "out: expected 0 to 2^34 elements, got 17179869185");
  EXPECT_EQ(message([&] { compressed_bytes_limit(many); }),
            "elements: expected 0 to 2^34 elements, got 17179869185");
  EXPECT_EQ(message([&] { compressed_bytes_limit(-1); }),
            "elements: expected 0 to 2^34 elements, got -1");
  EXPECT_EQ(of_decompress([&](auto& o) { o.compressed = view(packed.data(), DType::u8, {47}); }),
            "compressed: expected 48 bytes or more, for the 40 elements of out, got u8[47] on cpu");
  EXPECT_EQ(of_decompress([](auto& o) { o.compressed = {}; }),
            "compressed: expected 48 bytes or more, for the 40 elements of out, got none");
  EXPECT_EQ(of_decompress([](auto& o) { o.thread_blocks = -1; }),
            "thread_blocks: expected 0 or more, got -1");
}

TEST_F(CompressErrors, Memory) {
  const Place there{Memory::device, 0};
  EXPECT_EQ(of_compress([&](auto& o) { o.x = view(values.data(), DType::bf16, {n}, there); }),
            "x: expected host memory, got bf16[40] on cuda:0");
  EXPECT_EQ(of_compress([&](auto& o) { o.out = view(packed.data(), DType::u8, {900}, there); }),
            "out: expected host memory, got u8[900] on cuda:0");
  EXPECT_EQ(message([&] { compressed_info(view(packed.data(), DType::u8, {900}, there)); }),
            "compressed: expected host memory, got u8[900] on cuda:0");
  EXPECT_EQ(
      of_decompress([&](auto& o) { o.compressed = view(packed.data(), DType::u8, {900}, there); }),
      "compressed: expected memory of cpu, the stream's device, got u8[900] on cuda:0");
  EXPECT_EQ(of_decompress([&](auto& o) { o.out = view(back.data(), DType::bf16, {n}, there); }),
            "out: expected memory of cpu, the stream's device, got bf16[40] on cuda:0");
  const auto begin = [](const std::string& text) { return text.substr(0, text.find(", got")); };
  EXPECT_EQ(begin(of_decompress(
                [&](auto& o) { o.compressed = view(packed.data() + 8, DType::u8, {900}); })),
            "compressed: expected data aligned to 16 bytes");
  EXPECT_EQ(begin(of_decompress([&](auto& o) { o.out = view(back.data() + 4, DType::bf16, {n}); })),
            "out: expected data aligned to 16 bytes");
}

TEST_F(CompressErrors, Overlap) {
  EXPECT_EQ(of_compress([&](auto& o) { o.out = view(values.data() + n - 1, DType::u8, {900}); }),
            "out: expected memory that does not overlap x, got u8[900] on cpu over a part of it, "
            "bf16[40] on cpu");
  EXPECT_EQ(of_decompress([&](auto& o) { o.out = view(packed.data(), DType::bf16, {n}); }),
            "out: expected memory that does not overlap compressed, got bf16[40] on cpu over a "
            "part of it, u8[1024] on cpu");
}

TEST_F(CompressErrors, Headers) {
  const auto info = [&](std::int64_t bytes) {
    return message([&] { compressed_info(view(packed.data(), DType::u8, {bytes})); });
  };
  EXPECT_EQ(info(1024), "");
  EXPECT_EQ(info(144), "");
  EXPECT_EQ(info(143), "compressed: expected 144 bytes, as its header says, got u8[143] on cpu");
  EXPECT_EQ(info(31), "compressed: expected at least the 32 bytes of a header, got u8[31] on cpu");
  EXPECT_EQ(message([] { compressed_info({}); }),
            "compressed: expected at least the 32 bytes of a header, got none");
  const auto flip = [&](unsigned bit) {
    packed[bit / 8] = static_cast<std::uint8_t>(packed[bit / 8] ^ 1U << bit % 8);
  };
  for (unsigned bit = 0; bit < 256; ++bit) {
    flip(bit);
    EXPECT_EQ(info(1024),
              "compressed: expected data that compress() wrote, in this version's format, got "
              "another header")
        << "bit " << bit;
    flip(bit);
  }
}

// On fake GPUs: what is refused before anything is launched.
TEST_F(CompressErrors, OfAGpu) {
  FakeMachine machine;
  const Stream stream(machine.gpu());
  const Place there = machine.gpu().place();
  DecompressOptions pageable = unpacking;
  pageable.out = view(back.data(), DType::bf16, {n}, there);
  EXPECT_EQ(message([&] { decompress(pageable, stream); }),
            "compressed: expected memory of cuda:0, the stream's device, got u8[1024] on cpu");
  DecompressOptions pinned = unpacking;  // may be read from there, but not written
  pinned.compressed = view(packed.data(), DType::u8, {1024}, {.memory = Memory::pinned});
  pinned.out = view(back.data(), DType::bf16, {n}, {.memory = Memory::pinned});
  EXPECT_EQ(message([&] { decompress(pinned, stream); }),
            "out: expected memory of cuda:0, the stream's device, got bf16[40] on pinned");
}

TEST_F(CompressErrors, OfAGpuThatIsTooOld) {
  FakeMachine machine({.adjust = [](int, cuda::Properties& gpu) {
    gpu.major = 7;
    gpu.minor = 5;
  }});
  const Place there = machine.gpu().place();
  try {
    decompress({.compressed = view(packed.data(), DType::u8, {1024}, {.memory = Memory::pinned}),
                .out = view(back.data(), DType::bf16, {n}, there)},
               Stream(machine.gpu()));
    FAIL() << "accepted a GPU that is too old";
  } catch (const Unsupported& error) {
    EXPECT_EQ(std::string(error.what()),
              "decompress on cuda:0: needs compute capability 8.0 or later, found 7.5; use the CPU "
              "device");
  }
}

}  // namespace
}  // namespace ps::test
