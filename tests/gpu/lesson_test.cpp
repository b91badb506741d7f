// The tutorial's mistakes and exercises, each a program beside this one: they may hang and lose the
// device.
#include <chrono>
#include <string>

#include "gpu/gpu_test.h"
#include "support/child.h"

namespace ps::test {
namespace {

constexpr int is_right = 0, is_wrong = 1;

Ended run_lesson(const std::string& name, std::vector<std::string> arguments = {}) {
  return run({.program = beside_this_program(name), .arguments = std::move(arguments)});
}

class LessonGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int major = 0;
    ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
    if (major < 9) GTEST_SKIP() << "needs compute capability 9";
  }
};

TEST_F(LessonGpu, MistakesShowAndTheirRightFormsAreRight) {
  const Ended ended = run_lesson("mistakes", {"--check"});
  EXPECT_EQ(ended.code, is_right) << ended.out << ended.err;
  RecordProperty("mistakes", ended.out);
}

// Exercises 1 and 2 need no GPU: they are tests of their own.
TEST_F(LessonGpu, SolutionsAreRight) {
  for (int number = 3; number <= 6; ++number) {
    const Ended ended = run_lesson("solution_" + std::to_string(number));
    EXPECT_EQ(ended.code, is_right) << number << ": " << ended.out << ended.err;
    EXPECT_EQ(ended.out, "exercise " + std::to_string(number) + ": right\n");
  }
}

TEST_F(LessonGpu, ExercisesAreWrongAsShipped) {
  const auto expect_wrong = [](int number, const std::string& because) {
    const Ended ended = run_lesson("exercise_" + std::to_string(number));
    EXPECT_EQ(ended.code, is_wrong) << number << ": " << ended.out << ended.err;
    EXPECT_NE(ended.out.find(because), std::string::npos) << ended.out;
  };
  expect_wrong(3, "words are wrong");
  expect_wrong(4, "one each is enough");
  expect_wrong(5, "never far enough ahead");
  expect_wrong(6, "is nan instead of");
}

}  // namespace
}  // namespace ps::test
