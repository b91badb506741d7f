// The traces of the ladders' kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/kernel_page.h"

namespace ps::test {

// Runs a traced kernel, and expects that no record was lost and that every role has spans. Returns
// the number of spans of each role.
inline std::vector<int> expect_every_role(const ladder::TracedKernel& kernel,
                                          const Stream& stream) {
  const KernelTrace trace = ladder::run_traced(kernel, stream);
  const KernelRoles result = trace.roles({.most_blocks = kernel.room.blocks});
  EXPECT_EQ(result.lost, 0u);
  std::vector<int> spans(kernel.roles.size());
  for (const RoleSpan& span : result.spans) {
    ++spans.at(span.role);
    EXPECT_LE(span.begin_ns, span.end_ns);
  }
  EXPECT_EQ(std::ranges::count(spans, 0), 0) << "a role without spans";
  return spans;
}

}  // namespace ps::test
