#include "penstock/trace/perfetto.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace ps {
namespace {

using Json = nlohmann::ordered_json;

TEST(Perfetto, EveryIntervalIsASliceOfItsThread) {
  const PageRun runs[] = {{"sequential", {{Engine::upload, "upload", 3, 1'001, 2'002}}},
                          {"pipelined",
                           {{Engine::upload, "upload", 0, 0, 10},
                            {Engine::compute, "compute", 0, 10, 30},
                            {Engine::upload, "upload", 1, 10, 20}}}};
  const Json trace = Json::parse(perfetto_json(runs));
  std::map<std::pair<int, int>, std::string> threads;
  std::map<int, std::string> processes;
  std::vector<Json> slices;
  for (const Json& event : trace["traceEvents"]) {
    const std::pair<int, int> at{event["pid"], event["tid"]};
    if (event["name"] == "thread_name") threads[at] = event["args"]["name"];
    if (event["name"] == "process_name") processes[at.first] = event["args"]["name"];
    if (event["ph"] == "X") slices.push_back(event);
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{1, "sequential"}, {2, "pipelined"}}));
  ASSERT_EQ(slices.size(), 4u);
  EXPECT_DOUBLE_EQ(slices[0]["ts"], 1.001);  // microseconds
  EXPECT_DOUBLE_EQ(slices[0]["dur"], 1.001);
  EXPECT_EQ(slices[0]["args"]["item"], 3);
  const auto thread_of = [&](const Json& slice) {
    return threads.at({slice["pid"], slice["tid"]});
  };
  EXPECT_EQ(thread_of(slices[2]), "compute: compute");
  EXPECT_EQ(thread_of(slices[3]), thread_of(slices[1]));
  EXPECT_NE(slices[0]["pid"], slices[1]["pid"]);
}

TEST(Perfetto, RolesInsideAKernelAreThreadsOfTheirOwn) {
  PageRun run{.name = "r", .entries = {{Engine::compute, "work", 0, 0, 100}}};
  run.kernels = {{.name = "gemm",
                  .stage = "work",
                  .roles = {.names = {"loader"},
                            .spans = {{.block = 2, .tile = 5, .begin_ns = 10, .end_ns = 30}}}}};
  const PageRun runs[] = {run};
  const Json trace = Json::parse(perfetto_json(runs));
  const Json& thread = trace["traceEvents"][trace["traceEvents"].size() - 3];
  EXPECT_EQ(thread["args"]["name"], "gemm: block 2, loader");
  const Json& slice = trace["traceEvents"].back();
  EXPECT_EQ(slice["name"], "loader");
  EXPECT_EQ(slice["tid"], thread["tid"]);
  EXPECT_EQ(slice["args"]["tile"], 5);
  EXPECT_DOUBLE_EQ(slice["ts"], 0.01);
}

TEST(Perfetto, OfNothingIsStillATrace) {
  EXPECT_TRUE(Json::parse(perfetto_json({}))["traceEvents"].empty());
}

}  // namespace
}  // namespace ps
