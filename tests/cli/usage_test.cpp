// What every command promises: exit codes, help with an example, errors on one line.
#include <gtest/gtest.h>

#include <algorithm>

#include "penstock.h"
#include "penstock/version.h"

namespace ps::test {
namespace {

// Every command of the program; a new one joins here.
const std::vector<std::vector<std::string>> commands = {{"doctor"},         {"demo"},  {"overlap"},
                                                        {"ladder", "host"}, {"bench"}, {"tune"}};

void expect_one_error_line(const Ended& ended) {
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.err.rfind("penstock: error: ", 0), 0u) << ended.err;
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
}

TEST(Usage, SaysItsVersion) {
  const Ended ended = Penstock()({"--version"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out.rfind("penstock " PENSTOCK_VERSION, 0), 0u) << ended.out;
  EXPECT_EQ(ended.err, "");
}

TEST(Usage, HelpListsEveryCommand) {
  const Ended ended = Penstock()({"--help"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  for (const auto& command : commands) {
    EXPECT_NE(ended.out.find("  " + command.front() + " "), std::string::npos) << ended.out;
  }
}

TEST(Usage, EveryCommandsHelpHasAnExample) {
  for (std::vector<std::string> command : commands) {
    std::string typed = "  penstock";
    for (const std::string& word : command) typed += " " + word;
    command.emplace_back("--help");
    const Ended ended = Penstock()(command);
    EXPECT_EQ(ended.code, 0) << typed;
    EXPECT_NE(ended.out.find("Example"), std::string::npos) << ended.out;
    EXPECT_NE(ended.out.find(typed), std::string::npos) << ended.out;
    EXPECT_NE(ended.out.find("--json"), std::string::npos) << ended.out;
  }
}

TEST(Usage, WhatItDoesNotUnderstandIsTwo) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"dance"},
      {"--nope"},
      {"doctor", "--nope"},
      {"doctor", "extra"},
      {"doctor", "--device"},
      {"doctor", "--device", "tpu"},
      {"doctor", "--device", "cuda:9999"},
      {"doctor", "--dir", "/no/such/directory"},
      {"doctor", "--dir", "/proc/self/status"},
      {"doctor", "--quick", "--no-measure"},
      {"doctor", "--json=perhaps"},
      {"doctor", "a\nb"},
      {"tune", "dance"},
      {"tune", "--list", "--reset"},
      {"tune", "--reset", "--dry-run"},
  };
  for (const auto& arguments : wrong) {
    const Ended ended = Penstock()(arguments);
    EXPECT_EQ(ended.code, 2) << testing::PrintToString(arguments);
    expect_one_error_line(ended);
    EXPECT_NE(ended.err.find("--help"), std::string::npos) << ended.err;
  }
}

TEST(Usage, PointsToTheHelpOfTheCommandAtHand) {
  const auto hint = [](const std::vector<std::string>& arguments) {
    const std::string text = Penstock()(arguments).err;
    return text.substr(std::min(text.size(), text.find("(see: ")));
  };
  EXPECT_EQ(hint({"--nope"}), "(see: penstock --help)\n");
  EXPECT_EQ(hint({"doctor", "--nope"}), "(see: penstock doctor --help)\n");
  EXPECT_EQ(hint({"ladder", "host", "--nope"}), "(see: penstock ladder host --help)\n");
  EXPECT_EQ(hint({"overlap", "--chunk", "1M", "--nope"}), "(see: penstock overlap --help)\n");
}

TEST(Usage, OutputThatDoesNotArriveIsAFailure) {
  const Penstock penstock;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--version"}, {"--help"}, {"doctor", "--no-measure", "--json"}}) {
    ChildOptions options = penstock.options(arguments);
    options.out = "/dev/full";
    const Ended ended = run(options);
    EXPECT_EQ(ended.code, 1) << testing::PrintToString(arguments);
    EXPECT_NE(ended.err.find("standard output"), std::string::npos) << ended.err;
  }
}

}  // namespace
}  // namespace ps::test
