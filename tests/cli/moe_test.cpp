// penstock moe: from a disk without a GPU, as text and as JSON, bad input, interrupts.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "moe_text.h"
#include "penstock.h"

namespace ps::test {
namespace {

using Json = nlohmann::json;

std::vector<std::string> of_small_experts(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"moe",      "--device", "cpu",   "--experts", "8",
                                        "--hidden", "32",       "--ffn", "16",        "--top-k",
                                        "2",        "--seq",    "10",    "--repeats", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(MoeCommand, AnswersInJsonAndWritesItsReport) {
  const Penstock penstock;
  const Ended ended =
      penstock(of_small_experts({"--json", "--sweep", "--layers", "2", "--output", "out"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json answer = Json::parse(ended.out);
  EXPECT_EQ(answer["kind"], "moe");
  EXPECT_EQ(answer["from"], "disk");
  EXPECT_EQ(answer["shape"]["layers"], 2);
  EXPECT_EQ(answer["shape"]["width"], 16);
  EXPECT_EQ(answer["sweep"].size(), 7U);
  EXPECT_FALSE(answer.contains("timelines"));
  EXPECT_EQ(answer["decode"]["steps"].size(), 100U);
  EXPECT_EQ(answer["decode"]["slots"], 4) << "a quarter of two layers of eight";
  std::ifstream file(penstock.here().path() / "out" / "report.json");
  EXPECT_TRUE(Json::parse(file).contains("timelines"));
  EXPECT_TRUE(std::filesystem::exists(penstock.here().path() / "out" / "report.html"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(penstock.here().path()), {}), 1)
      << "the weights are gone";
}

TEST(MoeCommand, PrintsTheConfigurationAndTheTimes) {
  const Ended ended = Penstock()(of_small_experts(
      {"--rounding", "4", "--cache", "3", "--depth", "2", "--dtype", "f32", "--distinct", "4"}));
  EXPECT_EQ(ended.code, 0) << ended.err;
  for (const char* word :
       {"8 of 32 x 16 in each of 1 layer, f32",
        "4 of them allocated, the others reuse their weights", "2 experts per token",
        "rounded to 4", "2 slots", "3 experts stay loaded", "weight load", "compute", "total",
        "sequential", "pipelined", "StreamedExperts was not measured",
        "Decode steps were not measured", "floor"}) {
    EXPECT_NE(ended.out.find(word), std::string::npos) << word << "\n" << ended.out;
  }
}

TEST(MoeCommand, TellsWhatTheCacheOfDecodeStepsHad) {
  const Penstock penstock;
  const Ended ended = penstock(of_small_experts({"--steps", "6", "--decode-cache", "5"}));
  EXPECT_EQ(ended.code, 0) << ended.err;
  for (const char* word :
       {"Decode: 6 steps of 1 token, room for 5 of 8 experts", "hit rate", "in steps 4 to 6",
        "best fixed set", "offline optimum", "share of the disk", "median"}) {
    EXPECT_NE(ended.out.find(word), std::string::npos) << word << "\n" << ended.out;
  }
  const Ended without = penstock(of_small_experts({"--steps", "0", "--json"}));
  EXPECT_EQ(without.code, 0) << without.err;
  EXPECT_FALSE(Json::parse(without.out).contains("decode"));
}

TEST(MoeCommand, AddsATraceOfKernelsToItsPage) {
  const Penstock penstock;
  const std::string trace = R"({"schema": 1, "kind": "trace", "version": "0", "commit": "c",
      "date": "d", "name": "inside the products", "device": {"name": "cuda:0", "model": "G"},
      "timelines": {"moe": [["compute", "up", 0, 0, 100]]},
      "kernels": [{"run": "moe", "name": "up", "stage": "up", "item": 0, "roles": ["loader"],
                   "begin_ns": 0, "end_ns": 90, "error": {"max_ns": 1, "median_ns": 1,
                   "place_ns": 1}, "lost": 0, "columns": [], "spans": [[0, 0, 0, 0, 10, 20]]}]})";
  penstock.here().write("trace.json", trace);
  const Ended ended =
      penstock(of_small_experts({"--steps", "0", "--kernels", "trace.json", "--output", "out"}));
  EXPECT_EQ(ended.code, 0) << ended.err;
  const std::filesystem::path out = penstock.here().path() / "out";
  EXPECT_NE(read_text(out / "report.html").find("inside the products"), std::string::npos);
  EXPECT_EQ(Json::parse(read_text(out / "report.json"))["kernel_trace"]["name"],
            "inside the products");
}

TEST(MoeCommand, KnowsTheModels) {
  const Penstock penstock;
  for (const ExpertModel& model : expert_models()) {
    const Ended ended = penstock(of_small_experts({"--model", std::string(model.name), "--json"}));
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(Json::parse(ended.out)["shape"]["experts"], 8);
  }
  const Ended ended = penstock({"moe", "--model", "unknown"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("Mixtral-8x7B"), std::string::npos) << ended.err;
}

TEST(MoeCommand, WhatMakesNoSenseIsNamed) {
  const Penstock penstock;
  const auto expect_refused = [&](const std::vector<std::string>& more, const char* named) {
    const Ended ended = penstock(of_small_experts(more));
    EXPECT_NE(ended.code, 0) << named;
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err.find(named), std::string::npos) << ended.err;
  };
  expect_refused({"--layers", "0"}, "--layers");
  expect_refused({"--depth", "0"}, "--depth");
  expect_refused({"--streams", "17"}, "--streams");
  expect_refused({"--cache", "-1"}, "--cache");
  expect_refused({"--rounding", "0"}, "--rounding");
  expect_refused({"--dtype", "f64"}, "--dtype");
  expect_refused({"--from", "tape"}, "--from");
  expect_refused({"--from", "memory"}, "from");
  expect_refused({"--batch", "1000000"}, "batch");
  expect_refused({"--directory", "/proc/none"}, "/proc/none");
  expect_refused({"--repeats", "0"}, "--repeats");
  expect_refused({"--steps", "-1"}, "--steps");
  expect_refused({"--decode-cache", "0"}, "--decode-cache");
  expect_refused({"--kernels", "absent.json"}, "absent.json");
  penstock.here().write("report.json", R"({"schema": 1, "kind": "moe"})");
  expect_refused({"--kernels", "report.json"}, "report.json.kind");
  const Ended ended = penstock({"moe", "--device", "cpu", "--hidden", "12"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("hidden"), std::string::npos) << ended.err;
}

TEST(MoeCommand, StopsCleanlyOnInterrupt) {
  const Penstock penstock;
  int interrupted = 0;
  for (const int milliseconds : {40, 150, 400, 800}) {
    Child child(
        penstock.options({"moe", "--device", "cpu", "--repeats", "100000", "--output", "out"}));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    child.signal(SIGINT);
    const Ended ended = child.wait();
    if (ended.signal == SIGINT) continue;  // it had not yet begun to listen
    EXPECT_EQ(ended.code, 130) << ended.err;
    EXPECT_EQ(ended.err, "penstock: interrupted\n");
    for (const auto& left : std::filesystem::directory_iterator(penstock.here().path())) {
      EXPECT_EQ(left.path().filename(), "out");
    }
    ++interrupted;
  }
  EXPECT_GT(interrupted, 0);
}

}  // namespace
}  // namespace ps::test
