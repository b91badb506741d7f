// One moe() on the CPU, in a workspace of exactly the bytes that it needs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "penstock/ops/moe.h"
#include "support/guarded_memory.h"
#include "support/moe_arrays.h"

namespace ps::test {

// The bytes of `out`. Nothing around it and the workspace may be written.
inline std::vector<std::uint8_t> moe_bytes(MoeArrays& arrays, const Stream& stream) {
  MoeOptions options = arrays.options();
  GuardedMemory workspace(moe_workspace_bytes(options));
  options.workspace = workspace.view();
  moe(options, stream);
  stream.synchronize();
  EXPECT_TRUE(workspace.surroundings_untouched());
  EXPECT_TRUE(arrays.out().surroundings_untouched());
  return arrays.out().bytes();
}

}  // namespace ps::test
