// Names for tests that run once for each way of waiting.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "penstock/host/event.h"

namespace ps::test {

inline std::string waiting_name(const testing::TestParamInfo<Waiting>& tested) {
  switch (tested.param) {
    case Waiting::poll:
      return "Poll";
    case Waiting::spin:
      return "Spin";
    case Waiting::block:
      return "Block";
  }
  return "Unknown";
}

}  // namespace ps::test
