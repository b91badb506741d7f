// What benchmarks write: a case that is faster than its floor allows is dropped with the reason.
#include "support/results.h"

#include <gtest/gtest.h>

#include <string>

namespace bench {
namespace {

Json timed_case(const std::string& name, double us) {
  return {{"case", name}, {"ours", {{"call_us", us}}}, {"peer", Json::object()}};
}

class ResultsOfABenchmark : public testing::Test {
 protected:
  Results results{"name", ps::Device::cpu(), ps::Limits{}};
  const Json& cases() const { return results.document()["cases"]; }
  const Json& dropped() const { return results.document()["dropped"]; }
};

TEST_F(ResultsOfABenchmark, ACaseAboveItsFloorIsKept) {
  Json kept = timed_case("a", 98.5);
  kept["floor_us"] = 100;
  EXPECT_TRUE(results.add(kept));
  ASSERT_EQ(cases().size(), 1u);
  EXPECT_EQ(cases()[0], kept);
  EXPECT_TRUE(dropped().empty());
}

TEST_F(ResultsOfABenchmark, ACaseThatBeatsItsFloorIsDroppedWithTheReason) {
  Json fast = timed_case("a", 97);
  fast["floor_us"] = 100;
  EXPECT_FALSE(results.add(fast));
  EXPECT_TRUE(cases().empty());
  ASSERT_EQ(dropped().size(), 1u);
  EXPECT_EQ(dropped()[0], (Json{{"case", "a"},
                                {"reason",
                                 "took 97 us, 0.970 x its floor of 100 us; a row below 0.98 x its "
                                 "floor is a measuring error"},
                                {"us", 97.0},
                                {"floor_us", 100.0}}));
}

TEST_F(ResultsOfABenchmark, TheTimeOfTheGpuIsJudgedWhereItIsKnown) {
  Json fast = timed_case("a", 500);
  fast["ours"]["gpu_us"] = 90;
  fast["floor_us"] = 100;
  EXPECT_FALSE(results.add(fast));
}

TEST_F(ResultsOfABenchmark, AYardstickAndAPeerMayBeBeaten) {
  Json fast = timed_case("a", 50);
  fast["yardstick_us"] = 100;
  fast["yardstick"] = "memcpy of the same size";
  fast["peer"]["other"] = {{"call_us", 100}};
  EXPECT_TRUE(results.add(fast));
  EXPECT_EQ(cases().size(), 1u);
}

}  // namespace
}  // namespace bench
