// Arguments that gemm() refuses.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/ops/gemm.h"
#include "support/fake_machine.h"

namespace ps::test {
namespace {

// A call that is right. Tests spoil it.
class GemmErrors : public testing::Test {
 protected:
  static constexpr std::int64_t M = 3, N = 16, K = 8;

  GemmErrors() {
    options.a = view(a.data(), {M, K});
    options.b = view(b.data(), {N, K});
    options.out = view(out.data(), {M, N});
  }

  static TensorView view(void* data, std::vector<std::int64_t> shape, DType type = DType::bf16) {
    return {data, type, shape, Device::cpu().place()};
  }
  static TensorView strided(void* data, std::vector<std::int64_t> shape,
                            std::vector<std::int64_t> strides) {
    return {data, DType::bf16, shape, strides, Device::cpu().place()};
  }

  // "argument: expected ..., got ..." of the error, or "".
  std::string message(const std::function<void(GemmOptions&)>& spoil) const {
    GemmOptions bad = options;
    spoil(bad);
    return message(bad, Stream(Device::cpu()));
  }
  static std::string message(const GemmOptions& bad, const Stream& stream) {
    try {
      gemm(bad, stream);
      stream.synchronize();
    } catch (const InvalidArgument& error) {
      return error.argument() + ": expected " + error.expected() + ", got " + error.given();
    }
    return "";
  }

  // The same call in memory of a GPU.
  GemmOptions on(const Device& gpu) const {
    const auto moved = [&](const TensorView& from) {
      return TensorView(from.data(), from.dtype(), from.shape(), gpu.place());
    };
    return {.a = moved(options.a), .b = moved(options.b), .out = moved(options.out)};
  }

  alignas(64) std::array<std::uint16_t, 1024> a{}, b{}, out{};
  GemmOptions options;
};

TEST_F(GemmErrors, NoneWhereAllIsWell) {
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_EQ(message([](auto& o) { o.kernel = GemmKernel::sm90_64x64; }), "");  // the CPU has one
  EXPECT_EQ(message([&](auto& o) { o.a = strided(a.data() + 2 * K, {M, K}, {-K, 1}); }), "");
  EXPECT_EQ(message([&](auto& o) { o.a = strided(a.data(), {M, K}, {0, 1}); }), "");
  EXPECT_EQ(message([&](auto& o) {
              o.a = strided(a.data(), {M, 1}, {7, 5});  // no meaning inside rows of one element
              o.b = strided(b.data(), {N, 1}, {3, 9});
            }),
            "");
}

TEST_F(GemmErrors, Types) {
  EXPECT_EQ(message([&](auto& o) { o.a = view(a.data(), {M, K}, DType::f32); }),
            "a: expected elements of type bf16 or f16, got f32[3, 8] on cpu");
  EXPECT_EQ(message([](auto& o) { o.a = {}; }),
            "a: expected elements of type bf16 or f16, got none");
  EXPECT_EQ(message([&](auto& o) { o.b = view(b.data(), {N, K}, DType::f16); }),
            "b: expected elements of type bf16, the type of a, got f16[16, 8] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.out = view(out.data(), {M, N}, DType::f16); }),
            "out: expected elements of type bf16, the type of a, got f16[3, 16] on cpu");
}

TEST_F(GemmErrors, Shapes) {
  EXPECT_EQ(message([&](auto& o) { o.a = view(a.data(), {M * K}); }),
            "a: expected shape (M, K), got bf16[24] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.b = view(b.data(), {1, N, K}); }),
            "b: expected shape (N, K), got bf16[1, 16, 8] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.b = view(b.data(), {N, K + 1}); }),
            "b: expected shape (16, 8): N, and K as in a, got bf16[16, 9] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.out = view(out.data(), {N, M}); }),
            "out: expected shape (3, 16): the rows of a, the rows of b, got bf16[16, 3] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.a = strided(a.data(), {std::int64_t{1} << 31, K}, {0, 1}); }),
            "a: expected fewer than 2^31 rows and columns, got bf16[2147483648, 8] on cpu");
}

TEST_F(GemmErrors, Strides) {
  EXPECT_EQ(message([&](auto& o) { o.a = strided(a.data(), {M, K}, {2 * K, 2}); }),
            "a: expected a contiguous last dimension (a stride of 1), got bf16[3, 8] on cpu with "
            "stride 2");
  EXPECT_EQ(message([&](auto& o) { o.out = strided(out.data(), {M, N}, {N - 1, 1}); }),
            "out: expected elements that do not overlap each other, got bf16[3, 16] on cpu with "
            "strides [15, 1]");
}

TEST_F(GemmErrors, Memory) {
  EXPECT_EQ(message([&](auto& o) { o.out = view(a.data() + 23, {M, N}); }),
            "out: expected memory that does not overlap a, got bf16[3, 16] on cpu over a part of "
            "it, bf16[3, 8] on cpu");
  EXPECT_EQ(message([&](auto& o) { o.out = view(b.data(), {M, N}); }),
            "out: expected memory that does not overlap b, got bf16[3, 16] on cpu over a part of "
            "it, bf16[16, 8] on cpu");
  const TensorView elsewhere(a.data(), DType::bf16, {M, K}, {Memory::device, 0});
  EXPECT_EQ(message([&](auto& o) { o.a = elsewhere; }),
            "a: expected memory of cpu, the stream's device, got bf16[3, 8] on cuda:0");
}

TEST_F(GemmErrors, Kernels) {
  EXPECT_EQ(message([](auto& o) { o.kernel = static_cast<GemmKernel>(99); }),
            "kernel: expected best, portable or one of the sm90 kernels, got 99");
}

TEST_F(GemmErrors, OfAGpu) {
  const FakeMachine machine;
  const Stream stream(machine.gpu());
  EXPECT_EQ(message(options, stream).substr(0, 2), "a:");  // memory that the GPU cannot reach
  GemmOptions odd = on(machine.gpu());
  odd.a = TensorView(a.data(), DType::bf16, {M, K - 1}, machine.gpu().place());
  odd.b = TensorView(b.data(), DType::bf16, {N, K - 1}, machine.gpu().place());
  odd.kernel = GemmKernel::sm90_128x128;
  const std::string refused = message(odd, stream);
  EXPECT_EQ(refused.substr(0, 7), "kernel:");
  EXPECT_NE(refused.find("got sm90_128x128"), std::string::npos) << refused;
}

TEST_F(GemmErrors, OfGpusThatAreTooOld) {
  const auto refusal = [&](int major, int minor, GemmKernel kernel) -> std::string {
    const FakeMachine machine({.adjust = [=](int, cuda::Properties& gpu) {
      gpu.major = major;
      gpu.minor = minor;
    }});
    GemmOptions call = on(machine.gpu());
    call.kernel = kernel;
    try {
      gemm(call, Stream(machine.gpu()));
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal(7, 5, GemmKernel::best).find("needs compute capability 8.0 or later"),
            std::string::npos);
  EXPECT_NE(refusal(8, 0, GemmKernel::sm90_64x64)
                .find("needs compute capability 9.0 for kernel sm90_64x64, found 8.0"),
            std::string::npos);
}

}  // namespace
}  // namespace ps::test
