// penstock overlap and demo: figures as JSON, bad input, interrupts, a disk that is full.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "demo.h"
#include "penstock.h"
#include "support/full_disk.h"
#include "support/temporary_directory.h"

namespace ps::test {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> small = {
    "overlap", "--device", "cpu",    "--items",      "2",     "--rounds", "4", "--repeats",
    "1",       "--chunk",  "128KiB", "--item-bytes", "512KiB"};

std::vector<std::string> with(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(OverlapCommand, AnswersInJson) {
  const Ended ended = Penstock()(with(small, {"--json", "--sweep"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json answer = Json::parse(ended.out);
  EXPECT_EQ(answer["kind"], "overlap");
  EXPECT_EQ(answer["chunks"], 8);
  EXPECT_EQ(answer["rounds"], 4);
  EXPECT_FALSE(answer["sweep"].empty());
  const double floor = answer["floor_us"], pipelined = answer["pipelined_us"];
  // Both times are rounded to a nanosecond; the efficiency is not.
  const double rounding = 2e-3 / pipelined;
  EXPECT_NEAR(answer["efficiency"], floor / pipelined, rounding);
}

TEST(OverlapCommand, ShowsTheLimitBesideTheFigures) {
  const Ended ended = Penstock()(small);
  EXPECT_EQ(ended.code, 0) << ended.err;
  for (const char* word : {"8 chunks", "transfer", "compute", "total", "sequential", "pipelined",
                           "floor", "x floor", "speed-up", "hidden"}) {
    EXPECT_NE(ended.out.find(word), std::string::npos) << word << "\n" << ended.out;
  }
}

TEST(OverlapCommand, WhatMakesNoSenseIsNamed) {
  const auto expect_refused = [](const std::vector<std::string>& more, const char* named) {
    const Ended ended = Penstock()(with({"overlap", "--device", "cpu"}, more));
    EXPECT_NE(ended.code, 0) << named;
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err.find(named), std::string::npos) << ended.err;
  };
  expect_refused({"--items", "0"}, "--items");
  expect_refused({"--items", "-1"}, "--items");
  expect_refused({"--item-bytes", "0"}, "item");
  expect_refused({"--item-bytes", "3"}, "item_bytes");
  expect_refused({"--item-bytes", "1000TiB"}, "memory");
  expect_refused({"--item-bytes", "16EiB"}, "--item-bytes");
  expect_refused({"--item-bytes", "64KiB", "--chunk", "1MiB"}, "chunk");
  expect_refused({"--depth", "0"}, "--depth");
  expect_refused({"--ratio", "nan"}, "ratio");
  expect_refused({"--ways", "5"}, "--ways");
  expect_refused({"--repeats", "0"}, "repeats");
  expect_refused({"--chunk", "1MiB", "--uncut"}, "--uncut");
}

TEST(Demo, WritesItsReportAndNothingElse) {
  const Penstock penstock;
  const Ended ended = penstock({"demo", "--device", "cpu", "--quick", "--output", "out"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("out/report.json"), std::string::npos) << ended.out;
  const auto folder = penstock.here().path() / "out";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
  EXPECT_TRUE(std::filesystem::exists(folder / "report.html"));
  std::ifstream file(folder / "report.json");
  const Json report = Json::parse(file);
  EXPECT_EQ(report["chunks"], 32);
  EXPECT_TRUE(report.contains("timelines"));
}

// The clock says that the pipelined run takes half of what each engine takes alone.
TEST(Demo, ABusyMachineIsNoErrorAndItsTimesAreShown) {
  const TemporaryDirectory here;
  cli::DemoCommand command{.device = "cpu", .output = here.path().string(), .quick = true};
  command.directory = command.output;
  int tries = 0;
  command.timer = [&](std::string_view what, const std::function<void()>& run) {
    run();
    if (what == "pipelined") ++tries;
    return what == "pipelined" ? 0.5 : what == "sequential" ? 2 : 1;
  };
  testing::internal::CaptureStdout();
  EXPECT_NO_THROW(cli::run_demo(command, {}));
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(tries, 9);  // three runs in each of three tries
  for (const char* part : {"The machine is too busy to measure: in 3 tries, the pipelined run was "
                           "faster (500 ms) than "
                           "its\n  slowest part alone (1 s), which is impossible.",
                           "sequential", "2 s", "pipelined", "500 ms", "report.html"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  for (const char* claim : {"hidden", "speed-up", "invalid"}) {
    EXPECT_EQ(text.find(claim), std::string::npos) << claim << "\n" << text;
  }
  std::ifstream file(here.path() / "report.json");
  const Json report = Json::parse(file);
  EXPECT_EQ(report["valid"], false);
  EXPECT_NE(report["note"].get<std::string>().find("0.500 x its floor"), std::string::npos);
}

TEST(Demo, SaysWhatItCannotWrite) {
  const Penstock penstock;
  const Ended ended = penstock({"demo", "--device", "cpu", "--quick", "--output", "/proc/none"});
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_NE(ended.err.find("/proc/none"), std::string::npos) << ended.err;
}

TEST(Demo, AFullDiskIsNamedAndNothingStays) {
  const Penstock penstock;
  Ended ended;
  {
    const FileSizeLimit limit(1 << 20);
    ended = penstock({"demo", "--device", "cpu", "--quick", "--output", "out"});
  }
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_EQ(ended.out, "");
  EXPECT_NE(ended.err.find("out"), std::string::npos) << ended.err;
  EXPECT_TRUE(std::filesystem::is_empty(penstock.here().path() / "out"));
}

TEST(Demo, StopsCleanlyOnInterrupt) {
  const Penstock penstock;
  int interrupted = 0;
  for (const int milliseconds : {40, 150, 400, 800}) {
    Child child(penstock.options({"demo", "--device", "cpu", "--output", "out"}));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    child.signal(SIGINT);
    const Ended ended = child.wait();
    const auto folder = penstock.here().path() / "out";
    EXPECT_TRUE(!std::filesystem::exists(folder) || std::filesystem::is_empty(folder));
    if (ended.signal == SIGINT) continue;  // it had not yet begun to listen
    EXPECT_EQ(ended.code, 130) << ended.err;
    EXPECT_EQ(ended.err, "penstock: interrupted\n");
    ++interrupted;
  }
  EXPECT_GT(interrupted, 0);
}

}  // namespace
}  // namespace ps::test
