// penstock report: pages and traces from files, and files that are none.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "penstock.h"

namespace ps::test {
namespace {

using Json = nlohmann::json;

TEST(ReportCommand, MakesAPageAndATraceOfWhatOverlapWrote) {
  const Penstock penstock;
  const Ended measured =
      penstock({"overlap", "--device", "cpu", "--items", "2", "--rounds", "4", "--repeats", "1",
                "--chunk", "128KiB", "--item-bytes", "512KiB", "--output", "out"});
  ASSERT_EQ(measured.code, 0) << measured.err;
  const std::filesystem::path out = penstock.here().path() / "out";
  const std::string page = read_text(out / "report.html");
  EXPECT_NE(page.find("Penstock overlap"), std::string::npos);
  EXPECT_NE(measured.out.find("report.html"), std::string::npos);

  const Ended made = penstock({"report", "out/report.json", "--output", "page.html", "--title",
                               "mine", "--perfetto", "trace.json"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_NE(read_text(penstock.here().path() / "page.html").find("mine"), std::string::npos);
  const Json trace = Json::parse(read_text(penstock.here().path() / "trace.json"));
  EXPECT_GT(trace["traceEvents"].size(), 8u * 3u);
}

TEST(ReportCommand, AnswersInJson) {
  const Penstock penstock;
  penstock.here().write("ladder.json", R"({"schema": 1, "name": "ladder", "date": "d",
      "commit": "c", "machine": {}, "rungs": []})");
  const Ended ended = penstock({"report", "ladder.json", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json answer = Json::parse(ended.out);
  EXPECT_EQ(answer["bytes"],
            std::filesystem::file_size(penstock.here().path() / answer["page"].get<std::string>()));
}

TEST(ReportCommand, WhatIsWrongIsNamedAndNothingIsWritten) {
  const Penstock penstock;
  penstock.here().write("truncated.json", R"({"schema": 1, "cases": [)");
  penstock.here().write("other.json", R"({"schema": 7, "cases": []})");
  const auto expect_refused = [&](const std::vector<std::string>& arguments, const char* named) {
    const Ended ended = penstock(arguments);
    EXPECT_NE(ended.code, 0) << named;
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err.find(named), std::string::npos) << ended.err;
    EXPECT_FALSE(std::filesystem::exists(penstock.here().path() / "report.html"));
  };
  expect_refused({"report"}, "files");
  expect_refused({"report", "absent.json"}, "absent.json");
  expect_refused({"report", "."}, "directory");
  expect_refused({"report", "truncated.json"}, "truncated.json");
  expect_refused({"report", "other.json"}, "other.json.schema");
  penstock.here().write("good.json", R"({"schema": 1, "name": "l", "date": "d", "commit": "c",
      "machine": {}, "rungs": []})");
  expect_refused({"report", "good.json", "other.json"}, "other.json.schema");
  expect_refused({"report", "good.json", "--output", "no/such/page.html"}, "no/such/page.html");
}

}  // namespace
}  // namespace ps::test
