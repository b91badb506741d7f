// The argument that a call is refused for.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "penstock/base/error.h"

namespace ps::test {

// "" if the call is not refused.
template <class Call>
std::string refused_argument(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    EXPECT_FALSE(error.expected().empty());
    EXPECT_FALSE(error.given().empty());
    return error.argument();
  }
  return "";
}

}  // namespace ps::test
