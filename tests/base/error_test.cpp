#include "penstock/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace {

TEST(Error, InvalidArgumentNamesArgumentExpectationAndValue) {
  const ps::InvalidArgument error("depth", "at least 1", "0");
  EXPECT_STREQ(error.what(), "depth: expected at least 1, given 0");
  EXPECT_EQ(error.argument(), "depth");
  EXPECT_EQ(error.expected(), "at least 1");
  EXPECT_EQ(error.given(), "0");
}

TEST(Error, DerivesFromTheTypesCallersKnow) {
  EXPECT_THROW(throw ps::InvalidArgument("a", "b", "c"), std::invalid_argument);
  EXPECT_THROW(throw ps::OutOfMemory("device memory", 1), std::bad_alloc);
  EXPECT_THROW(throw ps::DeviceLost("cuda:0", "cause", 700), ps::DeviceError);
  EXPECT_THROW(throw ps::DeviceError("cuda:0", "call", 1, "meaning"), std::runtime_error);
  EXPECT_THROW(throw ps::SystemError(ENOENT, "opening", "x"), std::system_error);
}

TEST(Error, OutOfMemorySaysHowMuchAndWhere) {
  const ps::OutOfMemory error("page-locked memory", 3 << 20, "raise the limit");
  EXPECT_STREQ(error.what(), "out of page-locked memory: 3 MiB requested; raise the limit");
  EXPECT_EQ(error.requested(), std::size_t{3} << 20);
}

TEST(Error, SystemErrorNamesSubjectAndReason) {
  const ps::SystemError error(ENOENT, "opening", "a/file");
  EXPECT_NE(std::string(error.what()).find("opening a/file"), std::string::npos);
  EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos);
  EXPECT_EQ(error.code().value(), ENOENT);
}

TEST(Error, LostDeviceReportsItsFirstCause) {
  const ps::DeviceLost error("cuda:1", "copy failed: illegal address (code 700)", 700);
  EXPECT_NE(std::string(error.what()).find("illegal address"), std::string::npos);
  EXPECT_EQ(error.code(), 700);
}

}  // namespace
