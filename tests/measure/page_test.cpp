#include "penstock/measure/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "penstock/base/error.h"
#include "penstock/measure/report.h"
#include "support/page_data.h"

namespace ps {
namespace {

using Json = nlohmann::ordered_json;
using test::data_of;

const std::string& report() {
  static const std::string text = [] {
    OverlapExperiment experiment(Device::cpu(), 2, 256 * KiB);
    OverlapOptions options{.device = Device::cpu(), .chunk = 64 * KiB, .rounds = 2, .repeats = 1};
    options.sweep_chunks = {32 * KiB, 128 * KiB};
    options.sweep_depths = {1};
    return as_json(*experiment.run(options), Device::cpu(), true);
  }();
  return text;
}

const std::string results = R"({"schema": 1, "name": "moe", "date": "2026-01-01T00:00:00Z",
  "commit": "abc", "machine": {"gpu": "G", "driver": "1", "cuda": "13", "cpu": "C",
  "ceilings": {"copy_TBps": 4.0, "gemm_TFLOPs": 700.0}}, "peers": {"torch": "2.11", "other": "1"},
  "cases": [{"case": "a", "params": {}, "correct": true, "max_error": 0, "tolerance": 0,
  "floor_us": 50.0, "ours": {"gpu_us": 100.0, "call_us": 120.0}, "peer": {"torch": {"gpu_us": 150.0}},
  "metrics": {"flop": 1e9, "bytes": 1e7}}]})";

const std::string ladder = R"({"schema": 1, "name": "ladder", "date": "d", "commit": "c",
  "machine": {"model": "M"}, "rungs": [{"ladder": "host", "name": "pageable", "sentence": "s",
  "rows": [{"label": "l", "work": "w", "seconds": 0.5, "speedup": 1.0, "hidden": null,
  "efficiency": 0.5, "note": ""}]}]})";

Json sections_of(const std::string& document) {
  Page page = make_page("t");
  add_document(page, document, "file");
  return data_of(page)["sections"];
}

Json section(const Json& sections, const std::string& type) {
  for (const Json& s : sections) {
    if (s["type"] == type) return s;
  }
  return nullptr;
}

TEST(AddDocument, AReportHasItsTimelinesFiguresAndSweeps) {
  const Json sections = sections_of(report());
  const Json runs = section(sections, "timelines")["runs"];
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0]["name"], "sequential");
  ASSERT_EQ(runs[1]["lanes"].size(), 3u);
  for (const Json& lane : runs[1]["lanes"]) EXPECT_EQ(lane["items"].size(), 8u);  // the chunks
  std::vector<std::string> titles;
  for (const Json& s : sections) titles.push_back(s["title"]);
  for (const char* title : {"How close to the floor", "Time of each engine", "Timeline",
                            "Time over chunk size", "Time over slots per ring", "What ran"}) {
    EXPECT_NE(std::ranges::find(titles, title), titles.end()) << title;
  }
}

TEST(AddDocument, LostRecordsOfARunAreWrittenAndRead) {
  const PageRun runs[] = {{.name = "whole"}, {.name = "cut", .lost_records = 3}};
  const std::string document = trace_json("t", runs, Device::cpu());
  EXPECT_EQ(Json::parse(document)["lost_records"].dump(), R"({"cut":3})");
  const auto read = timelines_in(document, "file");
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].lost_records, 0U);
  EXPECT_EQ(read[1].lost_records, 3U);

  Json wrong = Json::parse(document);
  wrong["lost_records"] = {{"nobody", 3}};
  EXPECT_THROW(timelines_in(wrong.dump(), "file"), InvalidArgument);
  wrong["lost_records"] = {{"cut", -1}};
  EXPECT_THROW(timelines_in(wrong.dump(), "file"), InvalidArgument);
}

TEST(AddDocument, AReportWithoutTimelinesStillSaysWhatTheyLost) {
  OverlapResult result;
  result.pipelined_timeline.add_lost(4);
  const Json document = Json::parse(as_json(result, Device::cpu(), false));
  EXPECT_EQ(document["lost_records"].dump(), R"({"pipelined":4})");
  EXPECT_FALSE(document.contains("timelines"));
}

TEST(AddDocument, ResultsStandBesideTheirLimitAndPeers) {
  const Json sections = sections_of(results);
  const Json table = section(sections, "table");
  EXPECT_EQ(table["rows"][0], (Json{"a", "100 us", "50 us", 0.5, "150 us", "1.500", "–", "–"}));
  const Json roofline = section(sections, "roofline");
  EXPECT_EQ(roofline["ceilings"].size(), 2u);
  EXPECT_DOUBLE_EQ(roofline["points"][0]["intensity"], 100);
  EXPECT_DOUBLE_EQ(roofline["points"][0]["flops"], 1e13);
}

TEST(AddDocument, AYardstickHasAColumnAndADroppedCaseItsReason) {
  Json document = Json::parse(results);
  document["cases"][0].erase("floor_us");
  document["cases"][0]["yardstick_us"] = 110.0;
  document["dropped"] = {{{"case", "b"}, {"reason", "took 90 us, 0.900 x its floor of 100 us"}}};
  const Json table = section(sections_of(document.dump()), "table");
  EXPECT_EQ(table["columns"][2]["name"], "yardstick");
  EXPECT_EQ(table["columns"][3].value("share", false), false);
  EXPECT_EQ(table["rows"][0],
            (Json{"a", "100 us", "110 us", "1.100", "150 us", "1.500", "–", "–"}));
  EXPECT_NE(table["note"].get<std::string>().find("b was dropped: took 90 us"), std::string::npos);
}

TEST(AddDocument, TheLoadOfExpertsIsDrawnFromTheMostToTheLeastLoaded) {
  EXPECT_TRUE(section(sections_of(results), "plot").is_null());
  Json document = Json::parse(results);
  document["cases"][0]["metrics"]["load"] = {3, 0, 9};
  const Json plot = section(sections_of(document.dump()), "plot");
  EXPECT_EQ(plot["title"], "a: tokens per expert");
  EXPECT_EQ(plot["series"][0]["points"].dump(), "[[1.0,9.0],[2.0,3.0],[3.0,0.0]]");
  EXPECT_EQ(plot["series"][0]["marks"], false);
  EXPECT_EQ(plot["series"][1]["points"].dump(), "[[1.0,4.0],[3.0,4.0]]");
  EXPECT_NE(plot["note"].get<std::string>().find("2.25 ×"), std::string::npos);
  document["cases"][0]["metrics"]["load"] = Json::array();
  EXPECT_TRUE(section(sections_of(document.dump()), "plot").is_null());
  document["cases"][0]["metrics"]["load"] = {0, 0};
  EXPECT_TRUE(section(sections_of(document.dump()), "plot").is_null());
}

TEST(AddDocument, ARowOfALadderWithoutATimeSaysWhy) {
  Json document = Json::parse(ladder);
  Json& row = document["rungs"][0]["rows"][0];
  row["seconds"] = nullptr;
  row["efficiency"] = nullptr;
  row["note"] = "needs Hopper";
  Json table = section(sections_of(document.dump()), "table");
  EXPECT_EQ(table["rows"][0], (Json{"l", "–", "1.00x", nullptr, nullptr, "needs Hopper"}));
  row["dropped"] = "faster than its floor";
  table = section(sections_of(document.dump()), "table");
  EXPECT_EQ(table["rows"][0][5], "dropped: faster than its floor");
}

TEST(AddDocument, ALadderIsATableARung) {
  const Json table = section(sections_of(ladder), "table");
  EXPECT_EQ(table["title"], "pageable");
  EXPECT_EQ(table["rows"][0], (Json{"l", "500 ms", "1.00x", nullptr, 0.5, ""}));
}

TEST(TimelinesIn, ComeBackAsTheyWereRecorded) {
  const std::vector<PageRun> runs = timelines_in(report(), "file");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[1].name, "pipelined");
  EXPECT_EQ(runs[1].entries.size(), 24u);
  EXPECT_TRUE(timelines_in(results, "file").empty());
}

// A value put in the place of another, and the place that the error must name.
struct Spoilt {
  const std::string* document;
  const char *pointer, *value, *named;
};

TEST(AddDocument, WhatIsNotAsExpectedIsNamed) {
  const Spoilt all[] = {
      {&results, "/schema", "2", "file.schema"},
      {&results, "/cases", "{}", "file.cases"},
      {&results, "/cases/0/ours/gpu_us", "-1", "file.cases[0].ours.gpu_us"},
      {&results, "/cases/0/floor_us", "\"x\"", "file.cases[0].floor_us"},
      {&results, "/cases/0/metrics/load", "[1, -1]", "file.cases[0].metrics.load[1]"},
      {&results, "/peers", "[]", "file.peers"},
      {&results, "/machine/ceilings/copy_TBps", "0", "file.machine.ceilings.copy_TBps"},
      {&ladder, "/rungs/0/rows/0/seconds", "0", "file.rungs[0].rows[0].seconds"},
      {&ladder, "/rungs/0/name", "7", "file.rungs[0].name"}};
  for (const Spoilt& s : all) {
    Json document = Json::parse(*s.document);
    document[Json::json_pointer(s.pointer)] = Json::parse(s.value);
    Page page = make_page("t");
    try {
      add_document(page, document.dump(), "file");
      ADD_FAILURE() << "accepted " << s.pointer << " = " << s.value;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), s.named) << error.what();
    }
    EXPECT_TRUE(data_of(page)["sections"].empty());
  }
}

TEST(AddDocument, TimelinesAreCheckedToo) {
  const std::pair<const char*, const char*> all[] = {
      {R"(["warp", "s", 0, 0, 1])", "file.timelines.pipelined[0][0]"},
      {R"(["disk", "s", -1, 0, 1])", "file.timelines.pipelined[0][2]"},
      {R"(["disk", "s", 0, 5, 1])", "file.timelines.pipelined[0][4]"},
      {R"(["disk", "s", 0, 0, 9223372036854775807])", "file.timelines.pipelined[0][4]"},
      {R"(["disk", "s", 0, 0])", "file.timelines.pipelined[0]"},
      {R"("disk")", "file.timelines.pipelined[0]"}};
  for (const auto& [row, named] : all) {
    Json document = Json::parse(report());
    document["timelines"]["pipelined"][0] = Json::parse(row);
    try {
      timelines_in(document.dump(), "file");
      ADD_FAILURE() << "accepted " << row;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), named) << error.what();
    }
  }
}

// A run with a traced kernel in it.
PageRun traced_run() {
  PageRun run{.name = "pipelined",
              .entries = {{Engine::upload, "upload", 3, 100, 900},
                          {Engine::compute, "gemm", 3, 1000, 9000}}};
  KernelRoles roles{
      .names = {"loader", "compute"},
      .spans = {{.block = 7, .sm = 2, .role = 0, .tile = 7, .begin_ns = 1500, .end_ns = 2500},
                {.block = 7, .sm = 2, .role = 1, .tile = 7, .begin_ns = 2600, .end_ns = 8000}},
      .kernel = {1400, 8600},
      .error = {.max_ns = 41.5, .median_ns = 12.25},
      .place_ns = 400,
      .lost = 2};
  run.kernels = {{.name = "gemm_kernel", .stage = "gemm", .item = 3, .roles = roles}};
  return run;
}

std::string traced() {
  const PageRun runs[] = {traced_run()};
  return trace_json("one kernel", runs, Device::cpu());
}

TEST(TraceJson, ComesBackAsItWas) {
  const std::vector<PageRun> runs = timelines_in(traced(), "file");
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].entries.size(), 2U);
  ASSERT_EQ(runs[0].kernels.size(), 1U);
  const PageRun given = traced_run();
  const PageKernel &kernel = runs[0].kernels[0], &original = given.kernels[0];
  EXPECT_EQ(kernel.name, "gemm_kernel");
  EXPECT_EQ(kernel.stage, "gemm");
  EXPECT_EQ(kernel.item, 3U);
  EXPECT_EQ(kernel.roles.names, original.roles.names);
  EXPECT_EQ(describe(kernel.roles), describe(original.roles));
  EXPECT_EQ(kernel.roles.kernel.begin_ns, 1400);
  ASSERT_EQ(kernel.roles.spans.size(), 2U);
  EXPECT_EQ(kernel.roles.spans[1].role, 1U);
  EXPECT_EQ(kernel.roles.spans[1].tile, 7U);
  EXPECT_EQ(kernel.roles.spans[1].end_ns, 8000);
}

TEST(TraceJson, IsAPageOfItsTimelines) {
  const Json timelines = section(sections_of(traced()), "timelines");
  EXPECT_EQ(timelines["title"], "one kernel");
  EXPECT_EQ(timelines["runs"][0]["kernels"][0]["lanes"].size(), 2U);
}

TEST(TraceJson, ANoteIsShownAboveTheTimelines) {
  EXPECT_FALSE(Json::parse(traced()).contains("note"));
  const PageRun runs[] = {traced_run()};
  const std::string noted = trace_json("one kernel", runs, Device::cpu(), "Half of it is idle.");
  EXPECT_EQ(section(sections_of(noted), "timelines")["note"], "Half of it is idle.");
  Json wrong = Json::parse(noted);
  wrong["note"] = 7;
  EXPECT_THROW(sections_of(wrong.dump()), InvalidArgument);
}

TEST(TraceJson, RefusesRunsThatShareAName) {
  const PageRun twice[] = {{.name = "a"}, {.name = "a"}}, reserved[] = {{.name = "columns"}};
  EXPECT_THROW(trace_json("t", twice, Device::cpu()), InvalidArgument);
  EXPECT_THROW(trace_json("t", reserved, Device::cpu()), InvalidArgument);
}

TEST(AddDocument, AReportMayCarryTheInsideOfAKernel) {
  Json document = Json::parse(report());
  Json kernel = Json::parse(traced())["kernels"][0];
  kernel["stage"] = "compute";
  document["kernels"] = Json::array({kernel});
  const Json runs = section(sections_of(document.dump()), "timelines")["runs"];
  EXPECT_FALSE(runs[0].contains("kernels"));
  EXPECT_EQ(runs[1]["kernels"][0]["lanes"][1]["role"], "compute");
}

TEST(AddDocument, KernelsAreCheckedToo) {
  const std::string good = traced();
  const Spoilt all[] = {
      {&good, "/kernels", "{}", "file.kernels"},
      {&good, "/kernels/0", "7", "file.kernels[0]"},
      {&good, "/kernels/0/run", "\"none\"", "file.kernels[0].run"},
      {&good, "/kernels/0/name", "7", "file.kernels[0].name"},
      {&good, "/kernels/0/item", "4", "file.kernels[0].item"},
      {&good, "/kernels/0/item", "-1", "file.kernels[0].item"},
      {&good, "/kernels/0/stage", "\"upload\"", "file.kernels[0].item"},
      {&good, "/kernels/0/roles", "[]", "file.kernels[0].roles"},
      {&good, "/kernels/0/roles/1", "null", "file.kernels[0].roles[1]"},
      {&good, "/kernels/0/end_ns", "0", "file.kernels[0].end_ns"},
      {&good, "/kernels/0/begin_ns", "-9223372036854775808", "file.kernels[0].begin_ns"},
      {&good, "/kernels/0/error", "null", "file.kernels[0].error"},
      {&good, "/kernels/0/error/max_ns", "-1", "file.kernels[0].error.max_ns"},
      {&good, "/kernels/0/error/median_ns", "\"x\"", "file.kernels[0].error.median_ns"},
      {&good, "/kernels/0/error/other", "1", "file.kernels[0].error.other"},
      {&good, "/kernels/0/lost", "-1", "file.kernels[0].lost"},
      {&good, "/kernels/0/other", "1", "file.kernels[0].other"},
      {&good, "/kernels/0/spans", "{}", "file.kernels[0].spans"},
      {&good, "/kernels/0/spans/0", "[0, 0, 0, 0, 1]", "file.kernels[0].spans[0]"},
      {&good, "/kernels/0/spans/0/0", "4294967296", "file.kernels[0].spans[0][0]"},
      {&good, "/kernels/0/spans/0/2", "2", "file.kernels[0].spans[0][2]"},
      {&good, "/kernels/0/spans/1/4", "9000", "file.kernels[0].spans[1][5]"},
      {&good, "/timelines", "null", "file.timelines"},
      {&good, "/name", "null", "file.name"}};
  for (const Spoilt& s : all) {
    Json document = Json::parse(*s.document);
    document[Json::json_pointer(s.pointer)] = Json::parse(s.value);
    Page page;
    try {
      add_document(page, document.dump(), "file");
      ADD_FAILURE() << "accepted " << s.pointer << " = " << s.value;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), s.named) << error.what();
    }
    EXPECT_TRUE(data_of(page)["sections"].empty());
  }
}

TEST(AddDocument, RefusesWhatIsNotADocument) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"),
                                  std::string(R"({"schema": 1})"), std::string("null"), deep}) {
    Page page;
    EXPECT_THROW(add_document(page, text, "file"), InvalidArgument);
  }
}

TEST(AddDocument, TruncatedOrSpoiltItNeverFailsInAnotherWay) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto upto = [&](std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(0, most)(random);
  };
  const std::string trace = traced();
  const std::string* documents[] = {&report(), &results, &ladder, &trace};
  for (int i = 0; i < 800; ++i) {
    std::string text = *documents[i / 2 % 4];
    if (i % 2 == 0) {
      text.resize(upto(text.size() - 1));
    } else {
      text[upto(text.size() - 1)] = static_cast<char>(upto(255));
    }
    Page page;
    try {
      add_document(page, text, "file");
      page.html();
    } catch (const InvalidArgument&) {
    }
  }
}

}  // namespace
}  // namespace ps
