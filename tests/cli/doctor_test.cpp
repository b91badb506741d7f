#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "penstock.h"
#include "support/full_disk.h"

namespace ps::test {
namespace {

using Json = nlohmann::json;

Json parsed(const Ended& ended) {
  EXPECT_EQ(ended.code, 0) << ended.err;
  return Json::parse(ended.out);
}

TEST(Doctor, LooksWithoutMeasuring) {
  const Penstock penstock;
  const Json json = parsed(penstock({"doctor", "--no-measure", "--json"}));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_GE(json["machine"]["host"]["cores"], 1);
  EXPECT_TRUE(json["ceilings"].is_null());
  EXPECT_TRUE(json["findings"].is_array());
  EXPECT_TRUE(json["warnings"].empty());
  EXPECT_FALSE(std::filesystem::exists(penstock.cache_file()));

  const Ended text = penstock({"doctor", "--no-measure"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.err, "");
  for (const char* part : {"Machine", "CPU", "memory", "io_uring", "CUDA", "Findings"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(text.out.find("Ceilings"), std::string::npos);
}

TEST(Doctor, MeasuresQuicklyAndKeepsNothing) {
  const Penstock penstock;
  const Ended ended = penstock({"doctor", "--quick", "--device", "cpu", "--json"});
  EXPECT_EQ(ended.err, "");  // no progress where there is no terminal
  const Json json = parsed(ended);
  for (const char* rate : {"host_copy", "disk_read", "disk_write"}) {
    EXPECT_GT(json["ceilings"]["rates"][rate]["bytes_per_second"], 0) << rate;
    EXPECT_GE(json["ceilings"]["rates"][rate]["repetitions"], 7) << rate;
  }
  EXPECT_EQ(json["ceilings"]["cached"], false);
  EXPECT_EQ(json["ceilings"]["directory"], penstock.here().path().string());
  EXPECT_FALSE(std::filesystem::exists(penstock.cache_file()));
  EXPECT_TRUE(penstock.here().empty());
}

TEST(Doctor, KeepsWhatItMeasuredAndSaysSo) {
  const Penstock penstock;
  const Json first = parsed(penstock({"doctor", "--device", "cpu", "--json"}));
  const Json second = parsed(penstock({"doctor", "--device", "cpu", "--json"}));
  EXPECT_EQ(first["ceilings"]["cached"], false);
  EXPECT_EQ(second["ceilings"]["cached"], true);
  EXPECT_EQ(second["ceilings"]["date"], first["ceilings"]["date"]);
  EXPECT_EQ(second["ceilings"]["rates"], first["ceilings"]["rates"]);

  const Ended text = penstock({"doctor", "--device", "cpu"});
  EXPECT_NE(text.out.find("cached from " + first["ceilings"]["date"].get<std::string>()),
            std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("--fresh"), std::string::npos);
  const Json fresh =
      parsed(penstock({"doctor", "--device", "cpu", "--json", "--quick", "--fresh"}));
  EXPECT_EQ(fresh["ceilings"]["cached"], false);
}

TEST(Doctor, WarnsOfACacheItCannotUseAndMeasures) {
  const Penstock penstock;
  for (const std::string& bad :
       {std::string(), std::string(R"({"schema": 1, "entr)"), std::string("\0\xff", 2),
        std::string(R"({"schema": 2, "entries": []})")}) {
    std::ofstream(penstock.cache_file(), std::ios::binary) << bad;
    const Json json = parsed(penstock({"doctor", "--quick", "--device", "cpu", "--json"}));
    ASSERT_EQ(json["warnings"].size(), 1u) << bad.substr(0, 40);
    EXPECT_NE(json["warnings"][0].get<std::string>().find("limits.json"), std::string::npos);
    EXPECT_FALSE(json["ceilings"]["rates"].empty());
  }
}

TEST(Doctor, PutsWarningsOnStandardErrorInText) {
  const Penstock penstock;
  std::ofstream(penstock.cache_file()) << "{";
  const Ended ended = penstock({"doctor", "--quick", "--device", "cpu"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.err.rfind("penstock: warning: ", 0), 0u) << ended.err;
  EXPECT_NE(ended.out.find("Ceilings"), std::string::npos);
}

void expect_failure(const Ended& ended, const std::string& part) {
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.err.rfind("penstock: error: ", 0), 0u) << ended.err;
  EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
}

TEST(Doctor, NamesADirectoryItMayNotWriteTo) {
  // Not even root creates files in /sys.
  expect_failure(Penstock()({"doctor", "--quick", "--device", "cpu", "--dir", "/sys"}), "/sys");
}

TEST(Doctor, ReportsAFullDiskAndLeavesNoFile) {
  const SmallDisk disk("10m");
  if (!disk.mounted()) GTEST_SKIP() << "this user may not mount";
  expect_failure(
      Penstock()({"doctor", "--quick", "--device", "cpu", "--dir", disk.path().string()}),
      disk.path().string());
  EXPECT_TRUE(disk.empty());
}

TEST(Doctor, ReportsAFileSizeLimitAndLeavesNoFile) {
  const Penstock penstock;
  const FileSizeLimit limit(10 << 20);
  expect_failure(penstock({"doctor", "--quick", "--device", "cpu", "--dir", "."}), "too large");
  EXPECT_TRUE(penstock.here().empty());
}

TEST(Doctor, GoesOnWithoutADiskThatNobodyAskedFor) {
  const Penstock penstock;
  const FileSizeLimit limit(10 << 20);
  const Json json = parsed(penstock({"doctor", "--quick", "--device", "cpu", "--json"}));
  EXPECT_EQ(json["warnings"].size(), 1u);
  EXPECT_TRUE(json["ceilings"]["rates"].contains("host_copy"));
  EXPECT_FALSE(json["ceilings"]["rates"].contains("disk_read"));
}

TEST(Doctor, DrawsProgressOnATerminal) {
  const Penstock penstock;
  ChildOptions options = penstock.options({"doctor", "--quick", "--device", "cpu"});
  options.terminal = true;
  const Ended drawn = run(options);
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_NE(drawn.err.find("%"), std::string::npos);
  EXPECT_EQ(drawn.out.find("\033"), std::string::npos);
}

// Somewhere in the middle of measuring: the moment differs from run to run, the outcome does not.
void expect_clean_interrupt(int number) {
  const Penstock penstock;
  int interrupted = 0;
  for (const int milliseconds : {30, 120, 400, 900}) {
    Child child(penstock.options({"doctor", "--device", "cpu", "--fresh"}));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    child.signal(number);
    const Ended ended = child.wait();
    EXPECT_TRUE(penstock.here().empty());
    EXPECT_TRUE(std::filesystem::is_empty(penstock.cache()));
    if (ended.signal == number) continue;  // it had not yet begun to listen
    EXPECT_EQ(ended.code, 130) << ended.err;
    EXPECT_EQ(ended.err, "penstock: interrupted\n");
    EXPECT_EQ(ended.out, "");
    ++interrupted;
  }
  EXPECT_GT(interrupted, 0);
}

TEST(Doctor, StopsCleanlyOnInterrupt) { expect_clean_interrupt(SIGINT); }

TEST(Doctor, StopsCleanlyOnTermination) { expect_clean_interrupt(SIGTERM); }

TEST(Doctor, IgnoresAnInterruptThatItsStarterIgnores) {
  const Penstock penstock;
  ChildOptions options = penstock.options({"doctor", "--quick", "--device", "cpu"});
  options.ignores_interrupt = true;
  Child child(options);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  child.signal(SIGINT);
  EXPECT_EQ(child.wait().code, 0);
}

}  // namespace
}  // namespace ps::test
