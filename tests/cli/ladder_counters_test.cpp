// Counters of ladders: what ncu is asked, how its table is read, and what is made of it. No GPU is
// needed: ncu is a script.
#include "support/counters.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>

#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "support/captured.h"
#include "support/ladder.h"
#include "support/temporary_directory.h"

namespace ladder {
namespace {

constexpr const char* names =
    R"("ID","Process ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum",)"
    R"("dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum",)"
    R"("lts__t_sector_hit_rate.pct")";
constexpr const char* units = R"("","","","byte","byte","%","nsecond","%")";

std::string table_with(const std::string& launches) {
  return std::string("==PROF== Connected to process 7\n==PROF== Disconnected\n") + names + "\n" +
         units + "\n" + launches;
}

std::string message_of(const std::string& printed) {
  try {
    parse_counters(printed);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST(LadderCounters, ReadsOneLaunch) {
  const Counters counters = parse_counters(table_with(
      R"line("0","7","void f<float, int>(Problem)","2,000,000","500000","12.5","4,000","75")line"
      "\n"));
  EXPECT_EQ(counters.launches, 1U);
  EXPECT_DOUBLE_EQ(counters.seconds, 4e-6);
  EXPECT_DOUBLE_EQ(counters.dram_read_bytes, 2e6);
  EXPECT_DOUBLE_EQ(counters.dram_written_bytes, 5e5);
  EXPECT_DOUBLE_EQ(counters.dram_share, 0.125);
  EXPECT_DOUBLE_EQ(counters.l2_hit_rate, 0.75);
}

TEST(LadderCounters, AddsLaunchesAndWeighsSharesByTime) {
  const Counters counters =
      parse_counters(table_with("\"0\",\"7\",\"a\",\"100\",\"10\",\"10\",\"1000\",\"40\"\r\n"
                                "\"1\",\"7\",\"b\",\"300\",\"0\",\"50\",\"3000\",\"80\"\r\n"
                                "==PROF== a message behind the table\n"));
  EXPECT_EQ(counters.launches, 2U);
  EXPECT_DOUBLE_EQ(counters.seconds, 4e-6);
  EXPECT_DOUBLE_EQ(counters.dram_read_bytes, 400);
  EXPECT_DOUBLE_EQ(counters.dram_written_bytes, 10);
  EXPECT_DOUBLE_EQ(counters.dram_share, 0.4);
  EXPECT_DOUBLE_EQ(counters.l2_hit_rate, 0.7);
}

TEST(LadderCounters, OtherUnitsAreScaled) {
  std::string text = table_with("\"0\",\"7\",\"a\",\"2\",\"3\",\"10\",\"4\",\"40\"\n");
  const std::string others = R"("","","","Mbyte","Kbyte","%","usecond","%")";
  text.replace(text.find(units), std::string(units).size(), others);
  const Counters counters = parse_counters(text);
  EXPECT_DOUBLE_EQ(counters.dram_read_bytes, 2e6);
  EXPECT_DOUBLE_EQ(counters.dram_written_bytes, 3e3);
  EXPECT_DOUBLE_EQ(counters.seconds, 4e-6);
}

TEST(LadderCounters, WhatIsNoTableIsAnError) {
  EXPECT_NE(message_of("").find("expected ncu's table"), std::string::npos);
  EXPECT_NE(message_of("==ERROR== no kernels\n").find("no kernels"), std::string::npos);
  EXPECT_EQ(message_of(table_with("")), "ncu profiled no kernel");
  EXPECT_EQ(message_of(names), "ncu profiled no kernel");
  EXPECT_NE(message_of(table_with("\"0\",\"7\",\"a\",\"100\"\n")).find("expected 8 columns"),
            std::string::npos);
  EXPECT_NE(message_of(table_with("\"0\",\"7\",\"a\",\"n/a\",\"10\",\"10\",\"1000\",\"40\"\n"))
                .find("dram__bytes_read.sum: expected a number"),
            std::string::npos);
  EXPECT_NE(message_of(table_with("\"0\",\"7\",\"a\",\"-1\",\"10\",\"10\",\"1000\",\"40\"\n"))
                .find("got '-1'"),
            std::string::npos);
  EXPECT_EQ(message_of(table_with("\"0\",\"7\",\"a\",\"1\",\"10\",\"10\",\"0\",\"40\"\n")),
            "ncu measured no time");
  std::string text = table_with("\"0\",\"7\",\"a\",\"1\",\"10\",\"10\",\"1\",\"40\"\n");
  std::string unknown = text, missing = text;
  unknown.replace(unknown.find("nsecond"), 7, "fortnight");
  EXPECT_NE(message_of(unknown).find("got 'fortnight'"), std::string::npos);
  missing.replace(missing.find("lts__t"), 6, "xts__t");
  EXPECT_EQ(message_of(missing), "ncu's table has no column lts__t_sector_hit_rate.pct");
}

TEST(LadderCounters, NcuProfilesOnlyWhatIsMarked) {
  const auto command = ncu_command("/bin/ncu", "/bin/ladder", {"--only", "a b"});
  EXPECT_EQ(command.front(), "/bin/ncu");
  const auto start = std::ranges::find(command, "--profile-from-start");
  ASSERT_NE(start, command.end());
  EXPECT_EQ(start[1], "off");
  const std::vector<std::string> end(command.end() - 3, command.end());
  EXPECT_EQ(end, (std::vector<std::string>{"/bin/ladder", "--only", "a b"}));
}

TEST(Captured, KeepsWhatIsPrintedAndHowItEnded) {
  const Captured ended =
      run_captured({"sh", "-c", "echo out; echo \"$1\" >&2; echo $LC_ALL; exit 3", "sh", "a 'b"});
  EXPECT_EQ(ended.code, 3);
  EXPECT_EQ(ended.text, "out\na 'b\nC.UTF-8\n");
  EXPECT_EQ(run_captured({"sh", "-c", "kill -9 $$"}).code, 128 + 9);
  EXPECT_THROW(run_captured({"/no/such/program"}), ps::SystemError);
}

// Puts a script called ncu before everything else on the path.
class LadderNcu : public testing::Test {
 protected:
  void SetUp() override { path_ = std::getenv("PATH"); }
  void TearDown() override { setenv("PATH", path_.c_str(), 1); }

  void write_ncu(const std::string& body) {
    const std::filesystem::path file = folder_.path() / "ncu";
    std::ofstream(file) << "#!/bin/sh\n" << body;
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
  }
  static std::vector<RungRows> results() {
    return {{{.ladder = "copy", .name = "one"},
             {{.label = "a", .seconds = 1, .number = 0}, {.label = "elsewhere"}}},
            {{.ladder = "copy", .name = "two"},
             {{.label = "b", .seconds = 1, .number = 0}, {.label = "c", .number = 1}}}};
  }
  void measure(std::vector<RungRows>& rows, const std::stop_token& stop = {}) {
    measure_counters(
        rows,
        [&](const Rung& rung, std::size_t row) {
          return std::vector<std::string>{std::string(rung.name), std::to_string(row)};
        },
        [&](const Rung& rung, double fraction) {
          seen_.emplace_back(rung.name);
          EXPECT_LT(fraction, 1);
        },
        stop);
  }

  std::vector<std::string> seen_;
  ps::test::TemporaryDirectory folder_;

 private:
  std::string path_;
};

TEST_F(LadderNcu, EveryRowWithANumberIsProfiledAlone) {
  // Bytes: 10 for the rung `one`, 20 for `two`, and the row's number.
  write_ncu(
      "for word; do last2=$last; last=$word; done\n"
      "test $last2 = one && bytes=10 || bytes=20\n"
      "cat <<END\n" +
      table_with("\"0\",\"7\",\"a\",\"$bytes\",\"$last\",\"10\",\"1000\",\"40\"\n") + "END\n");
  std::vector<RungRows> rows = results();
  measure(rows);
  EXPECT_EQ(seen_, (std::vector<std::string>{"one", "two", "two"}));
  EXPECT_EQ(rows[0].rows[0].counters->dram_read_bytes, 10);
  EXPECT_EQ(rows[0].rows[0].counters->dram_written_bytes, 0);
  EXPECT_FALSE(rows[0].rows[1].counters);
  EXPECT_EQ(rows[1].rows[1].counters->dram_read_bytes, 20);
  EXPECT_EQ(rows[1].rows[1].counters->dram_written_bytes, 1);
}

TEST_F(LadderNcu, SaysWhyThereAreNoCounters) {
  std::vector<RungRows> rows = results();
  const auto message = [&] {
    try {
      measure(rows);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  write_ncu("echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission' >&2; exit 1\n");
  EXPECT_NE(message().find("ncu may not read the GPU's counters"), std::string::npos);
  write_ncu("echo something else; exit 4\n");
  EXPECT_NE(message().find("status 4: something else"), std::string::npos);
  setenv("PATH", "/no/such/folder", 1);
  EXPECT_NE(message().find("which is not on PATH"), std::string::npos);
}

TEST_F(LadderNcu, StopsWhenAsked) {
  write_ncu("exit 0\n");
  std::vector<RungRows> rows = results();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(measure(rows, stop.get_token()), ps::Cancelled);
}

TEST(LadderCounters, AreShownAndWritten) {
  Context context({.device = ps::Device::cpu(), .bytes = 4 * ps::MiB});
  static const Instructions machine{};
  const std::vector<RungRows> results{{{.ladder = "copy", .name = "one", .machine = &machine},
                                       {{.label = "a",
                                         .work = "w",
                                         .seconds = 1,
                                         .flops = 5e12,
                                         .counters = Counters{.launches = 2,
                                                              .seconds = 1e-3,
                                                              .dram_read_bytes = 12.34e6,
                                                              .dram_written_bytes = 5.6e6,
                                                              .dram_share = 0.789,
                                                              .l2_hit_rate = 0.456}},
                                        {.label = "b", .seconds = 2}}}};
  const std::string text = as_table(context, results);
  for (const char* part : {"78.9 %", "45.6 %", "12.3 MB", "5.6 MB"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  const auto rows = nlohmann::json::parse(as_json(context, results)).at("rungs").at(0).at("rows");
  EXPECT_EQ(rows.at(0).at("flops"), 5e12);
  EXPECT_EQ(rows.at(0).at("counters").at("launches"), 2);
  EXPECT_EQ(rows.at(0).at("counters").at("dram_share"), 0.789);
  EXPECT_FALSE(rows.at(1).contains("counters"));
  EXPECT_FALSE(rows.at(1).contains("flops"));
}

TEST(LadderCounters, RowsAreNumberedInEachRung) {
  Context context({.device = ps::Device::cpu(), .bytes = 4 * ps::MiB});
  const ps::Stream stream(context.device());
  int runs = 0;
  const auto enqueue = [&] { ++runs; };
  EXPECT_EQ(context.profile(stream, enqueue), 0U);
  EXPECT_EQ(context.profile(stream, enqueue), 1U);
  context.begin_rung();
  EXPECT_EQ(context.profile(stream, enqueue), 0U);
  EXPECT_EQ(runs, 0) << "no row is profiled";
}

}  // namespace
}  // namespace ladder
