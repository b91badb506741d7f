// Runs the program itself, because only it has the rungs linked in.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

struct Finished {
  int code = -1;
  std::string output;  // both streams
};

Finished penstock(const std::string& arguments) {
  const std::string command = std::string(PENSTOCK_CLI) + " " + arguments + " 2>&1";
  Finished finished;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return finished;
  char buffer[4096];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
    finished.output.append(buffer, got);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) finished.code = WEXITSTATUS(status);
  return finished;
}

const std::vector<std::string> host_rungs{
    "pageable", "page-locked", "double-buffering",  "depth",         "three-way",   "four-way",
    "kernels",  "allocation",  "release-threshold", "legacy-stream", "synchronise", "slot-ring",
    "layers",   "growth"};

TEST(LadderHost, QuickRunOnTheCpuHasEveryRung) {
  const Finished run = penstock("ladder host --quick --json --device cpu");
  ASSERT_EQ(run.code, 0) << run.output;
  const auto json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("machine").at("device"), "cpu");
  EXPECT_EQ(json.at("quick"), true);
  EXPECT_GT(json.at("chunk"), 0);
  EXPECT_GT(json.at("rounds"), 0);
  for (const auto& [engine, seconds] : json.at("alone_seconds").items()) {
    EXPECT_GT(seconds, 0) << engine;
  }

  std::vector<std::string> names;
  for (const auto& rung : json.at("rungs")) {
    names.push_back(rung.at("name"));
    EXPECT_EQ(rung.at("ladder"), "host");
    EXPECT_FALSE(rung.at("sentence").get<std::string>().empty());
    ASSERT_FALSE(rung.at("rows").empty()) << names.back();
    for (const auto& row : rung.at("rows")) {
      SCOPED_TRACE(names.back() + ": " + row.dump());
      EXPECT_FALSE(row.at("label").get<std::string>().empty());
      for (const char* figure : {"hidden", "efficiency", "upload_gaps"}) {
        EXPECT_TRUE(row.contains(figure)) << figure;
      }
      if (row.at("seconds").is_null()) {
        // Nothing measured must be explained.
        EXPECT_FALSE(row.at("note").get<std::string>().empty());
      } else {
        EXPECT_GT(row.at("seconds"), 0);
        EXPECT_GT(row.at("speedup"), 0);
      }
    }
  }
  EXPECT_EQ(names, host_rungs);
}

TEST(LadderHost, OverlapFiguresStandInTheRowsThatMoveData) {
  const Finished run = penstock("ladder host --quick --json --device cpu --only depth");
  ASSERT_EQ(run.code, 0) << run.output;
  const auto rungs = nlohmann::json::parse(run.output).at("rungs");
  ASSERT_EQ(rungs.size(), 1);
  const auto& rows = rungs[0].at("rows");
  ASSERT_EQ(rows.size(), 5);
  EXPECT_EQ(rows[0].at("label"), "depth 1");
  EXPECT_EQ(rows[0].at("speedup"), 1.0);
  EXPECT_EQ(rows[4].at("label"), "depth 8");
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("work"), "two-way");
    EXPECT_GE(row.at("upload_gaps").at("seconds"), 0);
  }
}

TEST(LadderHost, TheChunkIsTheOneAskedFor) {
  const Finished run = penstock(
      "ladder host --quick --json --device cpu --only three-way --bytes 5MiB --chunk 1MiB");
  ASSERT_EQ(run.code, 0) << run.output;
  const auto json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json.at("bytes"), 5 << 20);
  EXPECT_EQ(json.at("chunk"), 1 << 20);
}

TEST(LadderHost, WhatNeedsAGpuSaysSo) {
  const Finished run = penstock("ladder host --quick --device cpu --only legacy-stream");
  EXPECT_EQ(run.code, 0);
  EXPECT_NE(run.output.find("needs a GPU"), std::string::npos) << run.output;
}

TEST(LadderHost, RefusesWhatItDoesNotKnow) {
  const Finished rung = penstock("ladder host --only no-such-rung");
  EXPECT_EQ(rung.code, 2);
  EXPECT_NE(rung.output.find("three-way"), std::string::npos) << "lists the names: " << rung.output;
  EXPECT_EQ(penstock("ladder").code, 2);
  EXPECT_EQ(penstock("ladder no-such-ladder").code, 2);
}

// What a build with CUDA links in; without CUDA there are none.
const std::vector<std::string> copy_rungs{"synchronous", "coalesced", "registers",   "vectorised",
                                          "cp.async",    "pipeline",  "cooperative", "bulk",
                                          "tensor",      "roles",     "two-buffers", "ring",
                                          "persistent",  "multicast", "halo",        "two-level"};

TEST(LadderCopy, ListsItsRungsWithoutAGpu) {
  const Finished run = penstock("ladder copy --list --json");
  ASSERT_EQ(run.code, 0) << run.output;
  std::vector<std::string> names;
  const auto json = nlohmann::json::parse(run.output);
  for (const auto& rung : json.at("rungs")) {
    names.push_back(rung.at("name"));
    EXPECT_EQ(rung.at("ladder"), "copy");
    EXPECT_FALSE(rung.at("sentence").get<std::string>().empty());
    EXPECT_FALSE(rung.at("machine").at("holds").empty()) << names.back();
  }
#if PENSTOCK_WITH_CUDA
  EXPECT_EQ(names, copy_rungs);
  const Finished text = penstock("ladder copy --list");
  EXPECT_NE(text.output.find("[LDG.128, STG.128, no "), std::string::npos) << text.output;
#else
  EXPECT_TRUE(names.empty());
#endif
}

TEST(LadderCopy, NeedsAGpuAndSaysSo) {
  const Finished run = penstock("ladder copy --quick --device cpu");
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.output.find("'copy' needs a GPU: "), std::string::npos) << run.output;
}

TEST(LadderCopy, RefusesWhatItDoesNotKnow) {
  const Finished run = penstock("ladder copy --only no-such-rung --device cpu");
  EXPECT_NE(run.code, 0);
  EXPECT_EQ(penstock("ladder copy --chunk 1MiB").code, 2);
}

const std::vector<std::string> resample_rungs{"baseline", "warp-search", "vectorised", "cp.async",
                                              "bulk",     "tensor",      "persistent", "library"};

TEST(LadderResample, ListsItsRungsWithoutAGpu) {
  const Finished run = penstock("ladder resample --list --json");
  ASSERT_EQ(run.code, 0) << run.output;
  std::vector<std::string> names;
  const auto json = nlohmann::json::parse(run.output);
  for (const auto& rung : json.at("rungs")) {
    names.push_back(rung.at("name"));
    EXPECT_EQ(rung.at("ladder"), "resample");
    EXPECT_FALSE(rung.at("sentence").get<std::string>().empty());
    const bool is_library = names.back() == "library";  // whose machine code is elsewhere
    EXPECT_EQ(rung.at("machine").at("holds").empty(), is_library) << names.back();
  }
#if PENSTOCK_WITH_CUDA
  EXPECT_EQ(names, resample_rungs);
  const Finished text = penstock("ladder resample --list");
  EXPECT_NE(text.output.find("[UBLKCP.S.G, "), std::string::npos) << text.output;
  EXPECT_EQ(text.output.find("[]"), std::string::npos) << text.output;
#else
  EXPECT_TRUE(names.empty());
#endif
}

TEST(LadderResample, NeedsAGpuAndSaysSo) {
  const Finished run = penstock("ladder resample --all-shapes --device cpu");
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.output.find("'resample' needs a GPU: "), std::string::npos) << run.output;
}

TEST(LadderResample, RefusesWhatItDoesNotKnow) {
  EXPECT_NE(penstock("ladder resample --only no-such-rung --device cpu").code, 0);
  EXPECT_EQ(penstock("ladder resample --trace out").code, 2) << "it has no traces";
  EXPECT_EQ(penstock("ladder copy --all-shapes").code, 2) << "it has one shape";
}

TEST(LadderHost, ListsItsRungs) {
  const Finished run = penstock("ladder host --list --json");
  ASSERT_EQ(run.code, 0) << run.output;
  std::vector<std::string> names;
  const auto json = nlohmann::json::parse(run.output);
  for (const auto& rung : json.at("rungs")) names.push_back(rung.at("name"));
  EXPECT_EQ(names, host_rungs);
}

TEST(LadderHost, RefusesSizesThatCannotBeCut) {
  const Finished small = penstock("ladder host --device cpu --bytes 1KiB");
  EXPECT_EQ(small.code, 1);
  EXPECT_NE(small.output.find("bytes: expected"), std::string::npos) << small.output;
  const Finished chunk = penstock("ladder host --device cpu --bytes 4MiB --chunk 8MiB");
  EXPECT_EQ(chunk.code, 1);
  EXPECT_NE(chunk.output.find("chunk: expected"), std::string::npos) << chunk.output;
}

}  // namespace
