// Runs the programs themselves, because only penstock-ladder has the rungs linked in.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "penstock.h"

namespace ps::test {
namespace {

// Of words with no space in them.
Ended ladder(const std::string& words) {
  std::istringstream line("ladder " + words);
  const std::istream_iterator<std::string> first(line), end;
  return Penstock()(std::vector<std::string>(first, end));
}

const std::vector<std::string> host_rungs{
    "pageable", "page-locked", "double-buffering",  "depth",         "three-way",   "four-way",
    "kernels",  "allocation",  "release-threshold", "legacy-stream", "synchronise", "slot-ring",
    "layers",   "growth"};

TEST(LadderHost, QuickRunOnTheCpuHasEveryRung) {
  const Ended run = ladder("host --quick --json --device cpu");
  ASSERT_EQ(run.code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
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
        // Nothing measured must be explained, and so must a row that was dropped.
        EXPECT_FALSE(row.value("dropped", row.at("note").get<std::string>()).empty());
      } else {
        EXPECT_GT(row.at("seconds"), 0);
        EXPECT_GT(row.at("speedup"), 0);
      }
    }
  }
  EXPECT_EQ(names, host_rungs);
}

TEST(LadderHost, OverlapFiguresStandInTheRowsThatMoveData) {
  const Ended run = ladder("host --quick --json --device cpu --only depth");
  ASSERT_EQ(run.code, 0) << run.err;
  const auto rungs = nlohmann::json::parse(run.out).at("rungs");
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
  const Ended run =
      ladder("host --quick --json --device cpu --only three-way --bytes 5MiB --chunk 1MiB");
  ASSERT_EQ(run.code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json.at("bytes"), 5 << 20);
  EXPECT_EQ(json.at("chunk"), 1 << 20);
}

TEST(LadderHost, WhatNeedsAGpuSaysSo) {
  const Ended run = ladder("host --quick --device cpu --only legacy-stream");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("needs a GPU"), std::string::npos) << run.out;
}

TEST(LadderHost, RefusesWhatItDoesNotKnow) {
  const Ended rung = ladder("host --only no-such-rung");
  EXPECT_EQ(rung.code, 2) << rung.err;
  EXPECT_NE(rung.err.find("three-way"), std::string::npos) << "lists the names: " << rung.err;
  EXPECT_EQ(ladder("").code, 2);
  EXPECT_EQ(ladder("no-such-ladder").code, 2);
}

// What a build with CUDA links in; without CUDA, or without what needs a GPU, there are none.
const std::vector<std::string> copy_rungs{"synchronous", "coalesced", "registers",   "vectorised",
                                          "cp.async",    "pipeline",  "cooperative", "bulk",
                                          "tensor",      "roles",     "two-buffers", "ring",
                                          "persistent",  "multicast", "halo",        "two-level"};

TEST(LadderCopy, ListsItsRungsWithoutAGpu) {
  const Ended run = ladder("copy --list --json");
  ASSERT_EQ(run.code, 0) << run.err;
  std::vector<std::string> names;
  const auto json = nlohmann::json::parse(run.out);
  for (const auto& rung : json.at("rungs")) {
    names.push_back(rung.at("name"));
    EXPECT_EQ(rung.at("ladder"), "copy");
    EXPECT_FALSE(rung.at("sentence").get<std::string>().empty());
    EXPECT_FALSE(rung.at("machine").at("holds").empty()) << names.back();
  }
#if PENSTOCK_WITH_CUDA && PENSTOCK_GPU_TESTS
  EXPECT_EQ(names, copy_rungs);
  const Ended text = ladder("copy --list");
  EXPECT_NE(text.out.find("[LDG.128, STG.128, no "), std::string::npos) << text.out;
#else
  EXPECT_TRUE(names.empty());
#endif
}

TEST(LadderCopy, NeedsAGpuAndSaysSo) {
  const Ended run = ladder("copy --quick --device cpu");
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_NE(run.err.find("'copy' needs a GPU: "), std::string::npos) << run.err;
}

TEST(LadderCopy, RefusesWhatItDoesNotKnow) {
  const Ended run = ladder("copy --only no-such-rung --device cpu");
  EXPECT_NE(run.code, 0);
  EXPECT_EQ(ladder("copy --chunk 1MiB").code, 2);
}

const std::vector<std::string> resample_rungs{"baseline", "warp-search", "vectorised", "cp.async",
                                              "bulk",     "tensor",      "persistent", "library"};

TEST(LadderResample, ListsItsRungsWithoutAGpu) {
  const Ended run = ladder("resample --list --json");
  ASSERT_EQ(run.code, 0) << run.err;
  std::vector<std::string> names;
  const auto json = nlohmann::json::parse(run.out);
  for (const auto& rung : json.at("rungs")) {
    names.push_back(rung.at("name"));
    EXPECT_EQ(rung.at("ladder"), "resample");
    EXPECT_FALSE(rung.at("sentence").get<std::string>().empty());
    const bool is_library = names.back() == "library";  // whose machine code is elsewhere
    EXPECT_EQ(rung.at("machine").at("holds").empty(), is_library) << names.back();
  }
#if PENSTOCK_WITH_CUDA && PENSTOCK_GPU_TESTS
  EXPECT_EQ(names, resample_rungs);
  const Ended text = ladder("resample --list");
  EXPECT_NE(text.out.find("[UBLKCP.S.G, "), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("[]"), std::string::npos) << text.out;
#else
  EXPECT_TRUE(names.empty());
#endif
}

TEST(LadderResample, NeedsAGpuAndSaysSo) {
  const Ended run = ladder("resample --all-shapes --device cpu");
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_NE(run.err.find("'resample' needs a GPU: "), std::string::npos) << run.err;
}

TEST(LadderResample, RefusesWhatItDoesNotKnow) {
  EXPECT_NE(ladder("resample --only no-such-rung --device cpu").code, 0);
  EXPECT_EQ(ladder("resample --trace out").code, 2) << "it has no traces";
  EXPECT_EQ(ladder("copy --all-shapes").code, 2) << "it has one shape";
}

TEST(LadderDecode, ListsItsRungsWithoutAGpu) {
  const Ended run = ladder("decode --list --json");
  ASSERT_EQ(run.code, 0) << run.err;
  std::vector<std::string> names;
  const auto json = nlohmann::json::parse(run.out);
  for (const auto& rung : json.at("rungs")) {
    names.push_back(rung.at("name"));
    EXPECT_EQ(rung.at("ladder"), "decode");
    const bool is_library = names.back() == "library";  // whose machine code is elsewhere
    EXPECT_EQ(rung.at("machine").at("holds").empty(), is_library) << names.back();
  }
#if PENSTOCK_WITH_CUDA && PENSTOCK_GPU_TESTS
  EXPECT_EQ(names,
            (std::vector<std::string>{"one-block", "split", "equal-cuts", "paged", "library"}));
#else
  EXPECT_TRUE(names.empty());
#endif
}

TEST(LadderDecode, NeedsAGpuAndSaysSo) {
  const Ended run = ladder("decode --quick --device cpu");
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_NE(run.err.find("'decode' needs a GPU: "), std::string::npos) << run.err;
  EXPECT_EQ(ladder("decode --trace out").code, 2) << "it has no traces";
}

const std::vector<std::string> attention_rungs{
    "scalar", "double-buffered", "pipeline", "tma",        "mma-sync",     "wgmma",
    "roles",  "ping-pong",       "overlap",  "persistent", "causal-order", "library"};

TEST(LadderAttention, ListsItsRungsWithoutAGpu) {
  const Ended run = ladder("attention --list --json");
  ASSERT_EQ(run.code, 0) << run.err;
  std::vector<std::string> names;
  const auto json = nlohmann::json::parse(run.out);
  for (const auto& rung : json.at("rungs")) {
    names.push_back(rung.at("name"));
    EXPECT_EQ(rung.at("ladder"), "attention");
    const bool is_library = names.back() == "library";  // whose machine code is elsewhere
    EXPECT_EQ(rung.at("machine").at("holds").empty(), is_library) << names.back();
  }
#if PENSTOCK_WITH_CUDA && PENSTOCK_GPU_TESTS
  EXPECT_EQ(names, attention_rungs);
#else
  EXPECT_TRUE(names.empty());
#endif
}

TEST(LadderAttention, NeedsAGpuAndSaysSo) {
  const Ended run = ladder("attention --quick --device cpu");
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_NE(run.err.find("'attention' needs a GPU: "), std::string::npos) << run.err;
}

TEST(LadderAttention, CountersNeedAGpuToo) {
  const Ended run = ladder("attention --counters --device cpu");
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_NE(run.err.find("'attention' needs a GPU: "), std::string::npos) << run.err;
  EXPECT_EQ(ladder("host --counters --device cpu").code, 2) << "it has no kernels of its own";
  EXPECT_EQ(ladder("attention --help").out.find("--profile-row"), std::string::npos);
}

TEST(LadderAttention, RefusesWhatItDoesNotKnow) {
  EXPECT_NE(ladder("attention --only no-such-rung --device cpu").code, 0);
  EXPECT_EQ(ladder("attention --shape 1,2,3,4,5").code, 2);
}

TEST(LadderMoe, ListsItsRungsWithoutAGpu) {
  const Ended run = ladder("moe --list --json");
  ASSERT_EQ(run.code, 0) << run.err;
  std::vector<std::string> names;
  const auto json = nlohmann::json::parse(run.out);
  for (const auto& rung : json.at("rungs")) names.push_back(rung.at("name"));
#if PENSTOCK_WITH_CUDA && PENSTOCK_GPU_TESTS
  EXPECT_EQ(names, (std::vector<std::string>{"sequential", "overlapped"}));
#else
  EXPECT_TRUE(names.empty());
#endif
}

TEST(LadderMoe, NeedsAGpuAndSaysSo) {
  const Ended run = ladder("moe --device cpu --shape 70,64,40,8,2 --trace pages");
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_NE(run.err.find("'moe' needs a GPU: "), std::string::npos) << run.err;
}

TEST(LadderMoe, AShapeHasFivePositiveNumbers) {
  EXPECT_EQ(ladder("moe --device cpu --shape 70,64,40,8").code, 2);
  EXPECT_EQ(ladder("moe --device cpu --shape 70,64,40,8,0").code, 2);
  EXPECT_EQ(ladder("moe --device cpu --shape 70,64,40,8,two").code, 2);
  EXPECT_EQ(ladder("gemm --device cpu --shape 70,64,40,8,2").code, 2) << "it has none";
}

const std::vector<std::string> expert_rungs{"sequential", "double-buffered", "multi-stream",
                                            "staged",     "pipelined",       "rounded",
                                            "cached",     "compressed",      "other-types"};

void expect_every_expert_rung(const std::string& options) {
  SCOPED_TRACE(options);
  const Ended run = ladder("experts --json --device cpu " + options);
  ASSERT_EQ(run.code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_FALSE(json.contains("chunk")) << "it has no chunks";
  for (const char* fact : {"expert_bytes", "upload_alone_seconds", "compute_alone_seconds"}) {
    EXPECT_GT(json.at("facts").at(fact), 0) << fact;
  }
  std::vector<std::string> names;
  for (const auto& rung : json.at("rungs")) {
    names.push_back(rung.at("name"));
    EXPECT_EQ(rung.at("ladder"), "experts");
    ASSERT_FALSE(rung.at("rows").empty()) << names.back();
    for (const auto& row : rung.at("rows")) {
      SCOPED_TRACE(names.back() + ": " + row.dump());
      if (row.at("seconds").is_null()) {
        EXPECT_FALSE(row.at("dropped").get<std::string>().empty());
      } else {
        EXPECT_GT(row.at("seconds"), 0);
        EXPECT_GT(row.at("speedup"), 0);
      }
    }
  }
  EXPECT_EQ(names, expert_rungs);
}

TEST(LadderExperts, QuickRunOnTheCpuHasEveryRung) { expect_every_expert_rung("--quick"); }

TEST(LadderExperts, FewTokensPerExpertToo) {
  expect_every_expert_rung("--shape 20,64,40,8,2");
  for (const char* shape : {"1,200,136,9,2", "70,1032,72,33,3"}) {
    expect_every_expert_rung(std::string("--quick --shape ") + shape);
  }
}

TEST(LadderExperts, TakesAShape) {
  const Ended run = ladder("experts --device cpu --only compressed --shape 20,64,40,8,2");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("8 experts of 64 x 40"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("of the bytes"), std::string::npos) << run.out;
  const Ended bad = ladder("experts --device cpu --shape 20,60,40,8,2");
  EXPECT_EQ(bad.code, 1);
  EXPECT_NE(bad.err.find("hidden"), std::string::npos) << bad.err;
  EXPECT_EQ(ladder("experts --device cpu --shape 20,60,40,8").code, 2);
}

TEST(LadderHost, ListsItsRungs) {
  const Ended run = ladder("host --list --json");
  ASSERT_EQ(run.code, 0) << run.err;
  std::vector<std::string> names;
  const auto json = nlohmann::json::parse(run.out);
  for (const auto& rung : json.at("rungs")) names.push_back(rung.at("name"));
  EXPECT_EQ(names, host_rungs);
}

TEST(LadderHost, RefusesSizesThatCannotBeCut) {
  const Ended small = ladder("host --device cpu --bytes 1KiB");
  EXPECT_EQ(small.code, 1) << small.err;
  EXPECT_NE(small.err.find("bytes: expected"), std::string::npos) << small.err;
  const Ended chunk = ladder("host --device cpu --bytes 4MiB --chunk 8MiB");
  EXPECT_EQ(chunk.code, 1) << chunk.err;
  EXPECT_NE(chunk.err.find("chunk: expected"), std::string::npos) << chunk.err;
}

TEST(LadderProgram, IsNamedWhereItWasNotBuilt) {
  const Penstock penstock;
  ChildOptions options = penstock.options({"ladder", "host", "--list"});
  const std::filesystem::path alone = penstock.here().path() / "penstock";
  std::filesystem::copy_file(options.program, alone);
  options.environment.emplace_back("LD_LIBRARY_PATH", options.program.parent_path().string());
  options.program = alone;
  const Ended ended = run(options);
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_NE(ended.err.find("build the target penstock_ladder"), std::string::npos) << ended.err;
}

TEST(LadderProgram, ExplainsItself) {
  const Ended ended = ladder("--help");
  EXPECT_EQ(ended.code, 0) << ended.err;
  for (const char* name : {"host", "experts", "copy", "gemm", "resample", "moe"}) {
    EXPECT_NE(ended.out.find(name), std::string::npos) << ended.out;
  }
}

}  // namespace
}  // namespace ps::test
