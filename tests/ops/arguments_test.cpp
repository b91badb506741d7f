// The checks of arguments that operators share.
#include "ops/arguments.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "penstock/base/error.h"
#include "support/fake_machine.h"

namespace ps::detail {
namespace {

using test::FakeMachine;

// "argument: expected ..., given ...", or "" if the check passes.
std::string refused(const std::function<void()>& check) {
  try {
    check();
  } catch (const InvalidArgument& error) {
    return error.argument() + ": " + error.expected() + " | " + error.given();
  }
  return "";
}

class Arguments : public testing::Test {
 protected:
  TensorView floats(std::size_t begin, std::vector<std::int64_t> shape) {
    return {memory.data() + begin, DType::f32, shape, Device::cpu().place()};
  }
  TensorView strided(std::size_t begin, std::vector<std::int64_t> shape,
                     std::vector<std::int64_t> strides) {
    return {memory.data() + begin, DType::f32, shape, strides, Device::cpu().place()};
  }

  alignas(64) std::array<float, 256> memory{};
};

TEST_F(Arguments, NamesOfLists) {
  const TensorView view;
  EXPECT_EQ((Named{"at", view}.name()), "at");
  EXPECT_EQ((Named{"values", view, "sensors", 2}.name()), "sensors[2].values");
  EXPECT_EQ((Named{"", view, "in", 0}.name()), "in[0]");
}

TEST_F(Arguments, Given) {
  EXPECT_FALSE(given(TensorView()));
  EXPECT_TRUE(given(floats(0, {0})));
  EXPECT_FALSE(given(TensorView(nullptr, DType::f32, {0})));
  EXPECT_EQ(described(TensorView()), "none");
  EXPECT_EQ(described(TensorView(nullptr, DType::f32, {0, 4})), "f32[0, 4] on host");
}

TEST_F(Arguments, Types) {
  const TensorView x = floats(0, {4}), none;
  EXPECT_EQ(refused([&] { check_type({"x", x}, {DType::f16, DType::f32}); }), "");
  EXPECT_EQ(refused([&] { check_type({"x", x}, {DType::f16}); }),
            "x: elements of type f16 | f32[4] on cpu");
  EXPECT_EQ(refused([&] { check_type({"x", none}, {DType::f16, DType::bf16, DType::f32}); }),
            "x: elements of type f16, bf16 or f32 | none");
  const TensorView other(memory.data(), DType::i32, {4}, Device::cpu().place());
  EXPECT_EQ(refused([&] { check_same_type({"y", x}, {"x", x}); }), "");
  EXPECT_EQ(refused([&] { check_same_type({"y", other}, {"", x, "in", 1}); }),
            "y: elements of type f32, the type of in[1] | i32[4] on cpu");
}

TEST_F(Arguments, Extents) {
  const TensorView x = floats(0, {2, 12});
  EXPECT_EQ(refused([&] { check_rank({"x", x}, 2, "(T, d): tokens, hidden size"); }), "");
  EXPECT_EQ(refused([&] { check_rank({"x", x}, 1, "(d): hidden size"); }),
            "x: shape (d): hidden size | f32[2, 12] on cpu");
  for (const std::int64_t least : {2, 12}) {
    EXPECT_EQ(refused([&] { check_range({"x", x}, "d", 12, least, 12); }), "");
  }
  EXPECT_EQ(refused([&] { check_range({"x", x}, "d", 12, 13, 16); }),
            "x: d from 13 to 16 | 12 in f32[2, 12] on cpu");
  EXPECT_EQ(refused([&] { check_range({"x", x}, "d", 12, 1, 11); }),
            "x: d from 1 to 11 | 12 in f32[2, 12] on cpu");
  EXPECT_EQ(refused([&] { check_multiple({"x", x}, "d", 12, 4); }), "");
  EXPECT_EQ(refused([&] { check_multiple({"x", x}, "d", 12, 8); }),
            "x: d that is a multiple of 8 | 12 in f32[2, 12] on cpu");
}

TEST_F(Arguments, Shapes) {
  const TensorView x = floats(0, {2, 3});
  EXPECT_EQ(refused([&] { check_shape({"x", x}, {2, 3}, "rows, columns"); }), "");
  EXPECT_EQ(refused([&] { check_shape({"x", x}, {3, 2}, "rows, columns"); }),
            "x: shape (3, 2): rows, columns | f32[2, 3] on cpu");
  EXPECT_EQ(refused([&] { check_shape({"x", x}, {6}, "rows"); }),
            "x: shape (6): rows | f32[2, 3] on cpu");
  EXPECT_EQ(refused([&] { check_same_shape({"y", floats(8, {2, 3})}, {"x", x}); }), "");
  EXPECT_EQ(refused([&] { check_same_shape({"y", floats(8, {6})}, {"x", x}); }),
            "y: the shape of x, f32[2, 3] on cpu | f32[6] on cpu");
}

TEST_F(Arguments, Contiguity) {
  EXPECT_EQ(refused([&] { check_contiguous({"x", floats(0, {2, 3})}); }), "");
  EXPECT_EQ(refused([&] { check_contiguous({"x", strided(0, {2, 3}, {4, 1})}); }),
            "x: a contiguous view | f32[2, 3] on cpu with strides [4, 1]");
}

TEST_F(Arguments, MemoryOfTheCpu) {
  const Device cpu = Device::cpu();
  const auto at = [&](Place place) {
    return refused([&] {
      const TensorView view(memory.data(), DType::f32, {4}, place);
      check_memory({"x", view}, cpu);
    });
  };
  EXPECT_EQ(at(cpu.place()), "");
  EXPECT_EQ(at({Memory::host}), "");
  EXPECT_EQ(at({Memory::pinned}), "");
  EXPECT_EQ(at({Memory::device, 0}), "x: memory of cpu, the stream's device | f32[4] on cuda:0");
}

TEST_F(Arguments, MemoryOfAGpu) {
  FakeMachine machine;
  const auto at = [&](Place place, std::int64_t count = 4) {
    return refused([&] {
      const TensorView view(memory.data(), DType::f32, {count}, place);
      check_memory({"x", view}, machine.gpu());
    });
  };
  EXPECT_EQ(at(machine.gpu().place()), "");
  EXPECT_EQ(at({Memory::pinned}), "x: memory of cuda:0, the stream's device | f32[4] on pinned");
  EXPECT_EQ(at({Memory::device, 1}), "x: memory of cuda:0, the stream's device | f32[4] on cuda:1");
  EXPECT_EQ(at({Memory::host}, 0), "") << "no elements";
}

TEST_F(Arguments, Addresses) {
  const Device cpu = Device::cpu();
  const TensorView odd(reinterpret_cast<char*>(memory.data()) + 2, DType::f32, {4}, cpu.place());
  const std::string misaligned = refused([&] { check_memory({"x", odd}, cpu); });
  EXPECT_TRUE(
      misaligned.starts_with("x: data aligned to 4 bytes, the size of an element | address 0x"))
      << misaligned;
  EXPECT_EQ(refused([&] { check_alignment({"x", floats(4, {4})}, 16); }), "");
  EXPECT_EQ(refused([&] { check_alignment({"x", floats(1, {0})}, 16); }), "") << "no elements";
  EXPECT_TRUE(refused([&] {
                check_alignment({"x", floats(1, {4})}, 16);
              }).starts_with("x: data aligned to 16 bytes | address 0x"));
}

TEST_F(Arguments, ElementsOfAResult) {
  const auto check = [&](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
    return refused([&] { check_distinct_elements({"out", strided(100, shape, strides)}); });
  };
  EXPECT_EQ(check({2, 3}, {3, 1}), "");
  EXPECT_EQ(check({3, 2}, {1, 3}), "") << "transposed";
  EXPECT_EQ(check({2, 3}, {-3, -1}), "") << "backwards";
  EXPECT_EQ(check({1, 3}, {0, 1}), "") << "one element needs no stride";
  EXPECT_EQ(check({0, 3}, {0, 0}), "") << "no elements";
  EXPECT_EQ(check({2, 3}, {0, 1}),
            "out: elements that do not overlap each other | f32[2, 3] on cpu with strides [0, 1]");
  EXPECT_NE(check({2, 3}, {2, 1}), "");
  EXPECT_NE(check({2, 3}, {1, 1}), "");
}

TEST_F(Arguments, ResultsApart) {
  const auto check = [&](const TensorView& out, const TensorView& in) {
    return refused([&] { check_apart({"out", out}, {"in", in}); });
  };
  EXPECT_EQ(check(floats(0, {8}), floats(8, {8})), "");
  EXPECT_EQ(check(floats(8, {8}), floats(0, {8})), "");
  EXPECT_EQ(
      check(floats(0, {8}), floats(7, {8})),
      "out: memory that does not overlap in | f32[8] on cpu over a part of it, f32[8] on cpu");
  EXPECT_NE(check(floats(0, {8}), floats(0, {8})), "") << "in place";
  EXPECT_EQ(check(floats(0, {8}), floats(4, {0})), "") << "no elements";
  EXPECT_EQ(check(floats(4, {0}), floats(0, {8})), "") << "no elements";
  EXPECT_NE(check(strided(16, {4}, {-2}), floats(10, {1})), "") << "backwards";
  EXPECT_EQ(check(strided(16, {4}, {-2}), floats(9, {1})), "") << "backwards";
  EXPECT_NE(check(strided(0, {4}, {2}), strided(1, {4}, {2})), "") << "alternating elements";

  const TensorView a = floats(0, {8}), b = floats(8, {8}), out = floats(15, {2});
  const Named all[] = {{"a", a}, {"b", b}};
  EXPECT_TRUE(refused([&] {
                check_apart({"out", out}, all);
              }).starts_with("out: memory that does not overlap b"));
}

TEST_F(Arguments, ResultsInPlace) {
  const auto check = [&](const TensorView& out, const TensorView& in) {
    return refused([&] { check_apart_or_in_place({"out", out}, {"in", in}); });
  };
  EXPECT_EQ(check(floats(0, {8}), floats(0, {8})), "");
  EXPECT_EQ(check(floats(0, {8}), floats(0, {2, 4})), "");
  EXPECT_EQ(check(floats(0, {8}), floats(8, {8})), "");
  EXPECT_EQ(check(floats(0, {0}), floats(0, {8})), "");
  EXPECT_EQ(check(floats(1, {8}), floats(0, {8})),
            "out: the memory of in with elements of the same size, or memory that does not overlap "
            "it | f32[8] on cpu over a part of in, f32[8] on cpu");
  const TensorView half(memory.data(), DType::f16, {8}, Device::cpu().place());
  EXPECT_NE(check(half, floats(0, {8})), "");
}

std::string unsupported(const Device& device, const ComputeNeeded& needed) {
  try {
    require_compute(device, "sort", needed);
  } catch (const Unsupported& error) {
    return error.what();
  }
  return "";
}

TEST(RequireCompute, ComparesMajorThenMinor) {
  for (const auto& [major, minor, allowed] :
       {std::tuple{8, 5, false}, std::tuple{8, 6, true}, std::tuple{8, 9, true},
        std::tuple{9, 0, true}, std::tuple{7, 9, false}}) {
    FakeMachine machine({.adjust = [major = major, minor = minor](int, cuda::Properties& gpu) {
      gpu.major = major;
      gpu.minor = minor;
    }});
    const std::string message = unsupported(machine.gpu(), {.major = 8, .minor = 6});
    EXPECT_EQ(message.empty(), allowed) << major << "." << minor;
    const std::string exact =
        unsupported(machine.gpu(), {.major = 8, .minor = 6, .or_later = false});
    EXPECT_EQ(exact.empty(), major == 8 && minor == 6) << major << "." << minor;
  }
}

TEST(RequireCompute, SaysWhatToUseInstead) {
  FakeMachine machine({.adjust = [](int, cuda::Properties& gpu) { gpu.major = 7, gpu.minor = 5; }});
  EXPECT_EQ(unsupported(machine.gpu(), {}),
            "sort on cuda:0: needs compute capability 8.0 or later, found 7.5; use the CPU device");
  EXPECT_EQ(
      unsupported(machine.gpu(),
                  {.major = 9, .or_later = false, .kernel = "fast", .instead = "use kernel slow"}),
      "sort on cuda:0: needs compute capability 9.0 for kernel fast, found 7.5; use kernel "
      "slow");
  EXPECT_EQ(unsupported(Device::cpu(), {.major = 9}), "");
}

}  // namespace
}  // namespace ps::detail
