// What the tests of moe()'s errors share: what a call is refused for.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "penstock/base/error.h"
#include "penstock/ops/moe.h"
#include "support/changed_views.h"

namespace ps::test {

struct MoeRefusal {
  std::string argument, expected, given;
};

using MoeStep = void (*)(const MoeOptions&, const Stream&);

inline MoeRefusal moe_refusal(const MoeOptions& options, const Stream& stream, MoeStep step = moe) {
  try {
    step(options, stream);
    stream.synchronize();
  } catch (const InvalidArgument& error) {
    EXPECT_FALSE(error.expected().empty());
    EXPECT_FALSE(error.given().empty());
    return {error.argument(), error.expected(), error.given()};
  }
  return {};
}

}  // namespace ps::test
