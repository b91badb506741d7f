#include "penstock/trace/perfetto.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

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
  EXPECT_EQ(thread_of(slices[1]), "upload: upload");
  EXPECT_EQ(thread_of(slices[2]), "upload: upload");
  EXPECT_EQ(thread_of(slices[3]), "compute: compute");
  EXPECT_NE(slices[0]["pid"], slices[1]["pid"]);
}

// A slice with its times as Perfetto reads them: nanoseconds, cut off behind the point.
struct ReadSlice {
  std::string thread;
  std::uint64_t item;
  std::int64_t begin_ns, end_ns;
};

std::vector<ReadSlice> read_slices(const Json& trace) {
  const auto ns = [](const Json& us) { return static_cast<std::int64_t>(us.get<double>() * 1000); };
  std::map<int, std::string> threads;
  std::vector<ReadSlice> slices;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") threads[event["tid"]] = event["args"]["name"];
    if (event["ph"] != "X") continue;
    const std::int64_t begin_ns = ns(event["ts"]);
    slices.push_back(
        {threads.at(event["tid"]), event["args"].front(), begin_ns, begin_ns + ns(event["dur"])});
  }
  return slices;
}

// Perfetto drops a slice that begins inside another one of its thread and ends after it.
void expect_none_dropped(const std::vector<ReadSlice>& slices) {
  for (const ReadSlice& a : slices) {
    for (const ReadSlice& b : slices) {
      if (&a == &b || a.thread != b.thread) continue;
      EXPECT_FALSE(a.begin_ns <= b.begin_ns && b.begin_ns < a.end_ns)
          << a.thread << ": items " << a.item << " and " << b.item;
    }
  }
}

TEST(Perfetto, OverlappingIntervalsAreSlicesOfDifferentThreads) {
  PageRun run{.name = "r", .entries = {{Engine::compute, "compute", 0, 0, 100}}};
  for (std::uint64_t item = 0; item < 20; ++item) {  // four at a time
    const auto begin_ns = static_cast<std::int64_t>(item * 10);
    run.entries.push_back({Engine::disk, "read", item, begin_ns, begin_ns + 40});
  }
  const std::vector<ReadSlice> slices = read_slices(Json::parse(perfetto_json({&run, 1})));
  ASSERT_EQ(slices.size(), 21U);
  expect_none_dropped(slices);
  std::set<std::string> threads;
  for (const ReadSlice& slice : slices) threads.insert(slice.thread);
  EXPECT_EQ(threads, (std::set<std::string>{"compute: compute", "disk: read", "disk: read, row 2",
                                            "disk: read, row 3", "disk: read, row 4"}));
}

TEST(Perfetto, OverlappingSpansOfARoleAreSlicesOfDifferentThreads) {
  PageRun run{.name = "r", .entries = {{Engine::compute, "work", 0, 0, 100}}};
  run.kernels = {{.name = "gemm",
                  .stage = "work",
                  .roles = {.names = {"loads"},
                            .spans = {{.tile = 0, .begin_ns = 10, .end_ns = 30},
                                      {.tile = 1, .begin_ns = 20, .end_ns = 40}}}}};
  const std::vector<ReadSlice> slices = read_slices(Json::parse(perfetto_json({&run, 1})));
  ASSERT_EQ(slices.size(), 3U);
  expect_none_dropped(slices);
}

TEST(Perfetto, TimesKeepTheirNanosecondsAsPerfettoReadsThem) {
  PageRun run{.name = "r"};
  std::int64_t begin_ns = 1'001;  // 1.001 * 1000 is below 1001
  for (std::uint64_t item = 0; item < 5'000; ++item) {
    const auto length_ns = static_cast<std::int64_t>(item * item + 1);
    run.entries.push_back({Engine::host, "s", item, begin_ns, begin_ns + length_ns});
    begin_ns += length_ns;  // one after the other: a nanosecond less would be an overlap
  }
  run.entries.push_back({Engine::host, "reversed", 0, 500, 400});
  const std::vector<ReadSlice> slices = read_slices(Json::parse(perfetto_json({&run, 1})));
  ASSERT_EQ(slices.size(), run.entries.size());
  for (std::size_t i = 0; i + 1 < slices.size(); ++i) {
    EXPECT_EQ(slices[i].thread, "host: s");
    ASSERT_EQ(slices[i].begin_ns, run.entries[i].begin_ns) << i;
    ASSERT_EQ(slices[i].end_ns, run.entries[i].end_ns) << i;
  }
  EXPECT_EQ(slices.back().end_ns, 500) << "what ends before it begins has no length";
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

TEST(Perfetto, LostRecordsStandInTheNameOfTheProcess) {
  const PageRun run{.name = "pipelined", .lost_records = 3};
  const Json trace = Json::parse(perfetto_json({&run, 1}));
  EXPECT_EQ(trace["traceEvents"][0]["args"]["name"], "pipelined (incomplete: 3 records lost)");
}

TEST(Perfetto, OfNothingIsStillATrace) {
  EXPECT_TRUE(Json::parse(perfetto_json({}))["traceEvents"].empty());
}

}  // namespace
}  // namespace ps
