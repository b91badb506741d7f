// Loading and computing experts on the CPU: what the figures are made of, and what is refused.
#include "penstock/measure/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "measure/experts/flow.h"
#include "penstock/base/error.h"
#include "penstock/measure/page.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/full_disk.h"
#include "support/temporary_directory.h"

namespace ps {
namespace {

class ExpertsFromADisk : public testing::Test {
 protected:
  ExpertOverlapOptions small() const {
    return {.device = Device::cpu(),
            .shape = {.layers = 2, .experts = 6, .hidden = 32, .width = 16},
            .choices = 2,
            .sequence = 20,
            .from = ExpertsFrom::disk,
            .directory = directory.path(),
            .depth = 3,
            .repeats = 1,
            .tracing = Tracing::events};
  }

  test::TemporaryDirectory directory;
};

TEST_F(ExpertsFromADisk, EveryExpertIsReadAndComputedOnce) {
  const auto r = measure_expert_overlap(small());
  EXPECT_EQ(r->needed, 12U) << "40 choices among 6 experts reach all";
  EXPECT_EQ(r->loaded, 12U);
  EXPECT_EQ(r->bytes, 12 * ExpertStore::block_bytes(r->shape));
  EXPECT_EQ(r->rows, 2 * 20 * 2);
  EXPECT_EQ(r->padded_rows, 12 * 128);
  for (const Timeline* timeline : {&r->sequential_timeline, &r->pipelined_timeline}) {
    EXPECT_EQ(timeline->entries().size(), 24U);
    for (const Engine engine : {Engine::disk, Engine::compute}) {
      EXPECT_EQ(std::ranges::count(timeline->entries(), engine, &TimelineEntry::engine), 12);
    }
  }
  EXPECT_EQ(r->traced_by, "clocks");
  EXPECT_EQ(r->upload_alone.passes(), 0U);
  EXPECT_GT(r->read_alone.passes(), 1U);
  EXPECT_EQ(r->times.pipelined, r->pipelined.seconds);
  EXPECT_EQ(r->times.floor, std::max(r->read_alone.seconds(), r->compute_alone.seconds()));
  EXPECT_GE(r->times.ideal, r->times.floor);
  ASSERT_TRUE(r->streamed_seconds);
  EXPECT_GT(*r->streamed_seconds, 0);
  EXPECT_EQ(r->streamed_slots, 3U);
  EXPECT_EQ(r->distinct, 12);
  EXPECT_TRUE(directory.empty()) << "the file is gone";
}

TEST_F(ExpertsFromADisk, ASequentialRunOverlapsNothing) {
  const auto r = measure_expert_overlap(small());
  // Computing is timed by the stream, whose times can be too early by what it takes to record an
  // event. So only what follows it can be told from an overlap.
  std::map<std::uint64_t, std::int64_t> computed, read;
  for (const TimelineEntry& entry : r->sequential_timeline.entries()) {
    if (entry.stage == "compute") computed[entry.item] = entry.end_ns;
    if (entry.stage == "read") read[entry.item] = entry.begin_ns;
  }
  ASSERT_EQ(computed.size(), 12U);
  ASSERT_EQ(read.size(), 12U);
  for (std::uint64_t item = 1; item < 12; ++item) {
    EXPECT_GE(read.at(item), computed.at(item - 1)) << item;
  }
}

TEST_F(ExpertsFromADisk, CachedExpertsAreNotRead) {
  ExpertOverlapOptions options = small();
  options.cache = 5;
  options.sweep_depths = {1, 8};
  options.sweep_caches = {0, 100};
  const auto r = measure_expert_overlap(options);
  EXPECT_EQ(r->cache, 5U);
  EXPECT_EQ(r->loaded, 7U);
  ASSERT_EQ(r->sweep.size(), 4U);
  EXPECT_EQ(r->sweep[0].depth, 1U);
  EXPECT_EQ(r->sweep[0].cache, 5U);
  EXPECT_EQ(r->sweep[2].depth, 3U);
  EXPECT_EQ(r->sweep[2].cache, 0U);
  EXPECT_EQ(r->sweep[3].cache, 12U) << "all";
  for (const ExpertSweepPoint& point : r->sweep) EXPECT_GT(point.seconds, 0);

  options.cache = 12;
  const auto all = measure_expert_overlap(options);
  EXPECT_EQ(all->loaded, 0U);
  EXPECT_EQ(all->read_alone.passes(), 0U);
  EXPECT_EQ(all->times.floor, all->compute_alone.seconds());
}

// Every type, shape of the models and way of sharing gives the same bits sequentially, in the
// pipeline and by StreamedExperts, or the measurement throws.
TEST_F(ExpertsFromADisk, SmallVersionsOfEveryModel) {
  for (const ExpertModel& model : expert_models()) {
    SCOPED_TRACE(model.name);
    ExpertOverlapOptions options = small();
    options.shape = model.shape;
    options.shape.layers = 1;
    options.shape.experts = std::min<std::int64_t>(model.shape.experts, 16);
    options.shape.hidden = model.shape.hidden / 64 / 8 * 8;
    options.shape.width = 24;
    options.choices = model.choices;
    options.activation = model.activation;
    options.sequence = 1;
    options.depth = 1;
    const auto r = measure_expert_overlap(options);
    EXPECT_EQ(r->needed, static_cast<std::size_t>(model.choices));
    EXPECT_EQ(r->rows, model.choices);
  }
  for (const DType dtype : {DType::f16, DType::f32}) {
    ExpertOverlapOptions options = small();
    options.shape.dtype = dtype;
    options.distinct = 4;
    options.streams = 1;
    const auto r = measure_expert_overlap(options);
    EXPECT_EQ(r->distinct, 4);
    EXPECT_FALSE(r->streamed_seconds);
    EXPECT_NE(r->why_not_streamed, "");
  }
}

TEST_F(ExpertsFromADisk, RoundingLeavesNoPadding) {
  ExpertOverlapOptions options = small();
  options.sequence = 400;
  options.rounding = 128;
  const auto r = measure_expert_overlap(options);
  EXPECT_EQ(r->rows, r->padded_rows);
  EXPECT_GT(r->rows, 0);
}

TEST_F(ExpertsFromADisk, FasterThanItsFloorIsMeasuredAgainAndThenDropped) {
  ExpertOverlapOptions options = small();
  int runs = 0;
  options.timer = [&](std::string_view what, const std::function<void()>& run) {
    run();
    runs += what == "pipelined" ? 1 : 0;
    return what == "pipelined" ? 0.5 : what == "sequential" ? 2.0 : 1.0;
  };
  const auto r = measure_expert_overlap(options);
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(r->tries, 3);
  EXPECT_FALSE(r->verdict.kept());
  EXPECT_EQ(r->times.floor, 1.0);
  EXPECT_EQ(*r->streamed_seconds, 1.0);
}

TEST_F(ExpertsFromADisk, TheReportAndItsPageHaveTheFigures) {
  ExpertOverlapOptions options = small();
  options.sweep_depths = {1, 2};
  options.timer = [](std::string_view what, const std::function<void()>& run) {
    run();
    return what == "pipelined" ? 1.25 : what == "sequential" ? 2.0 : 1.0;
  };
  const auto r = measure_expert_overlap(options);
  const std::string text = as_json(*r, Device::cpu(), true);
  const auto document = nlohmann::json::parse(text);
  EXPECT_EQ(document["kind"], "moe");
  EXPECT_EQ(document["from"], "disk");
  EXPECT_EQ(document["shape"]["experts"], 6);
  EXPECT_EQ(document["experts_loaded"], 12);
  EXPECT_EQ(document["efficiency"], 0.8);
  EXPECT_EQ(document["floor_us"], 1e6);
  EXPECT_EQ(document["pipelined"]["total_us"], 1.25e6);
  EXPECT_EQ(document["streamed"]["total_us"], 1e6);
  EXPECT_FALSE(document["pipelined"].contains("upload_us"));
  EXPECT_EQ(document["sweep"].size(), 2U);
  EXPECT_EQ(document["timelines"]["pipelined"].size(), 24U);
  EXPECT_FALSE(nlohmann::json::parse(as_json(*r, Device::cpu(), false)).contains("timelines"));
  Page page = make_page("experts");
  add_document(page, text, "report.json");
  const std::string html = page.html();
  for (const char* part : {"Time over slots", "Timeline", "80.0%", "12 of 12 experts"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(timelines_in(text, "report.json").size(), 2U);
  for (const char* field : {"shape", "experts_needed", "floor_us", "sweep"}) {
    auto broken = nlohmann::ordered_json::parse(text);
    broken[field] = "wrong";
    Page other = make_page("experts");
    try {
      add_document(other, broken.dump(), "report.json");
      ADD_FAILURE() << field;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(error.argument().find(field), std::string::npos) << error.what();
    }
  }
}

// The loads of a GPU, which is a fake: every expert arrives once, on as many streams as asked for.
TEST_F(ExpertsFromADisk, AFakeGpuLoadsEveryExpertOnce) {
  for (const ExpertsFrom from : {ExpertsFrom::memory, ExpertsFrom::disk}) {
    for (const std::size_t streams : {1, 2, 4}) {
      SCOPED_TRACE(std::string(name(from)) + ", streams " + std::to_string(streams));
      test::FakeMachine machine({.seed = static_cast<std::uint32_t>(streams), .max_delay_us = 20});
      {
        ExpertOverlapOptions options = small();
        options.device = machine.gpu();
        options.shape.hidden = 256;  // blocks of several pages, for several streams
        options.from = from;
        options.cache = 3;
        const detail::ExpertWork work(options);
        for (const bool sequential : {false, true}) {
          detail::ExpertFlow flow(work, {.depth = 2,
                                         .streams = sequential ? 1 : streams,
                                         .cache = 3,
                                         .sequential = sequential,
                                         .compute = false});
          Timeline timeline;
          flow.run(&timeline, {});
          std::size_t uploads = 0, reads = 0;
          for (const TimelineEntry& entry : timeline.entries()) {
            uploads += entry.stage == "upload" ? 1 : 0;
            reads += entry.engine == Engine::disk ? 1 : 0;
          }
          EXPECT_EQ(uploads, 12U);
          EXPECT_EQ(reads, from == ExpertsFrom::disk ? 12U : 0U);
        }
      }
      EXPECT_TRUE(test::is_clean(machine.driver()));
    }
  }
}

TEST_F(ExpertsFromADisk, RefusesNonsenseByName) {
  const auto refused = [&](auto change) {
    ExpertOverlapOptions options = small();
    change(options);
    try {
      measure_expert_overlap(options);
    } catch (const InvalidArgument& error) {
      return error.argument();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused([](auto& o) { o.shape.hidden = 30; }), "hidden");
  EXPECT_EQ(refused([](auto& o) { o.shape.layers = 0; }), "layers");
  EXPECT_EQ(refused([](auto& o) { o.shape.experts = 513; }), "experts");
  EXPECT_EQ(refused([](auto& o) { o.choices = 7; }), "choices");
  EXPECT_EQ(refused([](auto& o) { o.choices = 0; }), "choices");
  EXPECT_EQ(refused([](auto& o) { o.batch = 0; }), "batch");
  EXPECT_EQ(refused([](auto& o) { o.sequence = 0; }), "sequence");
  EXPECT_EQ(refused([](auto& o) { o.batch = o.sequence = 1 << 11; }), "batch");
  EXPECT_EQ(refused([](auto& o) { o.rounding = -1; }), "rounding");
  EXPECT_EQ(refused([](auto& o) { o.rounding = 1 << 16; }), "rounding");
  EXPECT_EQ(refused([](auto& o) { o.distinct = -1; }), "distinct");
  EXPECT_EQ(refused([](auto& o) { o.depth = 0; }), "depth");
  EXPECT_EQ(refused([](auto& o) { o.streams = 0; }), "streams");
  EXPECT_EQ(refused([](auto& o) { o.repeats = 0; }), "repeats");
  EXPECT_EQ(refused([](auto& o) { o.tries = 0; }), "tries");
  EXPECT_EQ(refused([](auto& o) { o.sweep_depths = {0}; }), "sweep_depths");
  EXPECT_EQ(refused([](auto& o) { o.from = ExpertsFrom::memory; }), "from");
  EXPECT_TRUE(directory.empty());
}

TEST_F(ExpertsFromADisk, StopsAnywhereAndLeavesNothing) {
  for (const char* where : {"making the weights", "checking the results", "timing", "sweep"}) {
    std::stop_source source;
    ExpertOverlapOptions options = small();
    options.sweep_depths = {1};
    options.stop = source.get_token();
    options.progress = [&](std::string_view what, double) {
      if (what == where) source.request_stop();
    };
    EXPECT_THROW(measure_expert_overlap(options), Cancelled) << where;
    EXPECT_TRUE(directory.empty()) << where;
  }
}

TEST_F(ExpertsFromADisk, AFullDiskIsNamedAndNothingStays) {
  const test::FileSizeLimit limit(8192);
  try {
    measure_expert_overlap(small());
    FAIL() << "the file has more bytes";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find(directory.path().string()), std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(directory.empty());
  ExpertOverlapOptions options = small();
  options.directory = "/proc/none";
  EXPECT_THROW(measure_expert_overlap(options), SystemError);
}

}  // namespace
}  // namespace ps
