// A tool that shows NVTX ranges sees every item of every stage under the stage's name.
#include <gtest/gtest.h>

#if PENSTOCK_WITH_CUDA && __has_include(<nvtx3/nvToolsExt.h>)

#include <map>
#include <sstream>

#include "penstock.h"

namespace ps::test {
namespace {

TEST(Nvtx, NamesEveryStageOfEveryItem) {
  const Penstock penstock;
  ChildOptions options =
      penstock.options({"overlap", "--device", "cpu", "--items", "1", "--rounds", "4", "--repeats",
                        "1", "--chunk", "128KiB", "--item-bytes", "512KiB"});
  const std::string ranges = (penstock.here().path() / "ranges.txt").string();
  options.environment.emplace_back("NVTX_INJECTION64_PATH",
                                   beside_this_program("libpenstock_nvtx_injection.so").string());
  options.environment.emplace_back("PENSTOCK_TEST_RANGES", ranges);
  const Ended ended = run(options);
  ASSERT_EQ(ended.code, 0) << ended.err;
  std::map<std::string, int> seen;
  std::istringstream lines(read_text(ranges));
  for (std::string line; std::getline(lines, line);) ++seen[line];
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_GE(seen["upload"], 4);
  EXPECT_EQ(seen["upload"], seen["compute"]);
  EXPECT_EQ(seen["upload"], seen["download"]);
}

}  // namespace
}  // namespace ps::test

#endif
