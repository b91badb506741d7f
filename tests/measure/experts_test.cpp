// Loading and computing experts on the CPU: what the figures are made of, and what is refused.
#include "penstock/measure/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "measure/experts/decode.h"
#include "measure/experts/flow.h"
#include "measure/experts/traced_steps.h"
#include "outofcore/expert_groups.h"
#include "penstock/base/error.h"
#include "penstock/measure/page.h"
#include "penstock/measure/report.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/full_disk.h"
#include "support/page_data.h"
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
    options.decode_steps = 3;
    const auto r = measure_expert_overlap(options);
    ASSERT_TRUE(r->decode) << r->why_no_decode;
    EXPECT_EQ(r->decode->steps.back().needed, static_cast<std::uint64_t>(model.choices));
    EXPECT_EQ(r->needed, static_cast<std::size_t>(model.choices));
    EXPECT_EQ(r->rows, model.choices);
  }
  for (const DType dtype : {DType::f16, DType::f32}) {
    ExpertOverlapOptions options = small();
    options.shape.dtype = dtype;
    options.distinct = 4;
    options.streams = 1;
    options.decode_steps = 3;
    const auto r = measure_expert_overlap(options);
    EXPECT_FALSE(r->decode);
    EXPECT_EQ(r->why_no_decode, r->why_not_streamed);
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

TEST_F(ExpertsFromADisk, ThePackedFileCanBeReadBeforeAnythingIsTimed) {
  ExpertOverlapOptions options = small();
  std::uintmax_t bytes = 0;
  bool timed = false;
  options.packed = [&](const std::filesystem::path& file) {
    EXPECT_FALSE(timed);
    bytes = std::filesystem::file_size(file);
  };
  options.timer = [&](std::string_view, const std::function<void()>& run) {
    timed = true;
    return seconds_of(run);
  };
  const auto r = measure_expert_overlap(options);
  EXPECT_GE(bytes, r->bytes);
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
  EXPECT_EQ(timelines_in(text, "report.json").size(), 3U);
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

TEST_F(ExpertsFromADisk, DecodeStepsAddUp) {
  ExpertOverlapOptions options = small();
  options.batch = 2;
  options.decode_steps = 9;
  options.decode_cache = 4;
  const auto r = measure_expert_overlap(options);
  EXPECT_TRUE(directory.empty()) << "the file is gone";
  ASSERT_TRUE(r->decode) << r->why_no_decode;
  const ExpertDecode& decode = *r->decode;
  EXPECT_EQ(decode.slots, 4U);
  EXPECT_EQ(decode.counted_from, 4U);
  EXPECT_EQ(decode.link, Engine::disk);
  ASSERT_EQ(decode.steps.size(), 9U);
  // The same experts are drawn again.
  const detail::ExpertWork work(options);
  const detail::DecodeSteps drawn(options, work, 9);
  std::uint64_t hits = 0, needed = 0;
  for (std::size_t i = 0; i < 9; ++i) {
    const ExpertDecodeStep& step = decode.steps[i];
    EXPECT_EQ(step.needed, drawn.needed(i, 0).size() + drawn.needed(i, 1).size()) << i;
    EXPECT_EQ(step.needed, step.hits + step.late + step.misses) << i;
    EXPECT_EQ(step.bytes, step.misses * ExpertStore::block_bytes(r->shape)) << i;
    EXPECT_GT(step.seconds, 0) << i;
    if (i < decode.counted_from) continue;
    hits += step.hits;
    needed += step.needed;
  }
  EXPECT_EQ(decode.steps[0].misses, decode.steps[0].needed) << "the cache begins empty";
  EXPECT_EQ(decode.hit_rate, static_cast<double>(hits) / static_cast<double>(needed));
  // Every set of four of the twelve experts.
  const std::vector<std::int64_t> all = drawn.accesses(9);
  const std::span counted = std::span(all).subspan(drawn.accesses(4).size());
  ASSERT_EQ(counted.size(), needed);
  std::int64_t best = 0;
  for (unsigned set = 0; set < 1U << 12; ++set) {
    if (std::popcount(set) != 4) continue;
    best = std::max<std::int64_t>(
        best, std::ranges::count_if(counted, [&](auto key) { return (set >> key & 1U) != 0; }));
  }
  EXPECT_EQ(decode.best_fixed_set, static_cast<double>(best) / static_cast<double>(needed));
  EXPECT_GE(decode.offline_optimum, decode.hit_rate);
}

TEST_F(ExpertsFromADisk, TheShareOfTheDiskIsThatOfTheBytesThatWereRead) {
  ExpertOverlapOptions options = small();
  options.decode_steps = 8;
  options.decode_cache = 2;
  double step = 1;
  options.timer = [&](std::string_view what, const std::function<void()>& run) {
    run();
    return what == "decode" ? step : what == "load alone" ? 0.25 : what == "pipelined" ? 2.0 : 1.0;
  };
  const auto r = measure_expert_overlap(options);
  std::uint64_t bytes = 0;
  for (std::size_t i = 4; i < 8; ++i) bytes += r->decode->steps[i].bytes;
  ASSERT_GT(bytes, 0U) << "two experts do not suffice for two layers";
  const double alone = 0.25 * static_cast<double>(bytes) /
                       static_cast<double>(r->needed * ExpertStore::block_bytes(r->shape));
  ASSERT_TRUE(r->decode->share_of_link);
  EXPECT_DOUBLE_EQ(*r->decode->share_of_link, alone / 4);

  step = alone / 8;  // twice as fast as the disk
  const auto dropped = measure_expert_overlap(options);
  EXPECT_FALSE(dropped->decode->share_of_link);
  EXPECT_NE(dropped->decode->why_no_share.find("floor"), std::string::npos)
      << dropped->decode->why_no_share;

  options.decode_cache = 1000;
  options.decode_steps = 60;
  const auto all = measure_expert_overlap(options);
  EXPECT_EQ(all->decode->slots, 12U) << "no more than there are";
  EXPECT_EQ(all->decode->hit_rate, 1);
  EXPECT_EQ(all->decode->why_no_share, "nothing was loaded");
}

TEST_F(ExpertsFromADisk, DecodeStepsAreForAtMost1024Sequences) {
  ExpertOverlapOptions options = small();
  options.batch = 1025;
  options.sequence = 1;
  options.decode_steps = 1;
  const auto r = measure_expert_overlap(options);
  EXPECT_FALSE(r->decode);
  EXPECT_EQ(r->why_no_decode, "more than 1024 sequences");
}

// The bars of a trace, by what their stage and item are.
using Bars = std::map<std::pair<std::string, std::uint64_t>, std::vector<TimelineEntry>>;

Bars bars_of(const Timeline& timeline) {
  Bars bars;
  for (const TimelineEntry& entry : timeline.entries()) {
    bars[{entry.stage, entry.item}].push_back(entry);
  }
  return bars;
}

TEST_F(ExpertsFromADisk, StreamedCallsAreTraced) {
  ExpertOverlapOptions options = small();
  options.decode_steps = 4;
  options.decode_cache = 2;
  const auto r = measure_expert_overlap(options);
  for (const Timeline* timeline : {&r->streamed_timeline, &r->decode->timeline}) {
    // In a decode trace, eight steps of two layers.
    const std::size_t calls = timeline == &r->streamed_timeline ? 2 : 16;
    const Bars bars = bars_of(*timeline);
    for (std::uint64_t item = 0; item < calls; ++item) {
      SCOPED_TRACE(testing::Message() << "call " << item << " of " << calls);
      const auto products = bars.find({"products", item}), load = bars.find({"load", item});
      ASSERT_NE(products, bars.end());
      EXPECT_EQ(products->second.front().engine, Engine::compute);
      const auto waits = bars.find({"wait", item});
      if (load == bars.end()) {
        EXPECT_EQ(waits, bars.end()) << "nothing to wait for";
        continue;
      }
      ASSERT_EQ(load->second.size(), 1U);
      const TimelineEntry& loaded = load->second.front();
      EXPECT_EQ(loaded.engine, Engine::disk);
      EXPECT_EQ(loaded.end_ns, products->second.back().begin_ns) << "the last one is needed there";
      if (waits == bars.end()) continue;
      for (const TimelineEntry& wait : waits->second) {
        EXPECT_GE(wait.begin_ns, loaded.begin_ns);
        EXPECT_LE(wait.end_ns, loaded.end_ns);
        for (const TimelineEntry& product : products->second) {
          EXPECT_TRUE(product.end_ns <= wait.begin_ns || product.begin_ns >= wait.end_ns);
        }
      }
    }
    EXPECT_FALSE(bars.contains({"products", calls}));
  }
  options.tracing = Tracing::none;
  const auto untraced = measure_expert_overlap(options);
  EXPECT_TRUE(untraced->streamed_timeline.entries().empty());
  EXPECT_TRUE(untraced->decode->timeline.entries().empty());
}

TEST(TracedCalls, BarsFollowFromTheirTimes) {
  using Group = detail::TracedCall::Group;
  const std::vector<detail::TracedCall> calls{
      // Two hits, computed while the third is loaded, and a wait for the rest of that time.
      {.record = {.hits = 2, .misses = 1, .enqueued_ns = 1000, .routed_ns = 1010},
       .groups = {Group{.arrived_ns = 1015, .products = {1015, 1040}},
                  Group{.arrived_ns = 1060, .products = {1065, 1080}}}},
      // Enqueued before the products of the first one ended; all hits.
      {.record = {.hits = 3, .enqueued_ns = 1020, .routed_ns = 1090},
       .groups = {Group{.arrived_ns = 1100, .products = {1100, 1110}}}},
      // All its experts are loaded from the beginning, before they are known.
      {.record = {.misses = 2, .enqueued_ns = 1115, .routed_ns = 1150},
       .whole = true,
       .groups = {Group{.arrived_ns = 1140, .products = {1140, 1160}}}},
      // The hit was computed before the load began.
      {.record = {.hits = 1, .misses = 1, .enqueued_ns = 1170, .routed_ns = 1200},
       .groups = {Group{.arrived_ns = 1180, .products = {1180, 1190}},
                  Group{.arrived_ns = 1230, .products = {1235, 1240}}}}};
  Timeline timeline;
  add_calls(timeline, calls, Engine::upload);
  Bars bars = bars_of(timeline);
  const auto expect = [&](const char* stage, std::uint64_t item, Engine engine,
                          std::vector<std::pair<std::int64_t, std::int64_t>> spans) {
    std::vector<std::pair<std::int64_t, std::int64_t>> found;
    for (const TimelineEntry& entry : bars[{stage, item}]) {
      EXPECT_EQ(entry.engine, engine) << stage;
      found.emplace_back(entry.begin_ns, entry.end_ns);
    }
    EXPECT_EQ(found, spans) << stage << " " << item;
    bars.erase({stage, item});
  };
  expect("routing", 0, Engine::host, {{0, 10}});
  expect("load", 0, Engine::upload, {{10, 60}});
  expect("wait", 0, Engine::host, {{10, 15}, {40, 60}});
  expect("products", 0, Engine::compute, {{15, 40}, {65, 80}});
  expect("routing", 1, Engine::host, {{80, 90}});
  expect("products", 1, Engine::compute, {{100, 110}});
  expect("load", 2, Engine::upload, {{115, 140}});
  expect("wait", 2, Engine::host, {{115, 140}});
  expect("products", 2, Engine::compute, {{140, 160}});
  expect("routing", 3, Engine::host, {{170, 200}});
  expect("load", 3, Engine::upload, {{200, 230}});
  expect("wait", 3, Engine::host, {{200, 230}});
  expect("products", 3, Engine::compute, {{180, 190}, {235, 240}});
  EXPECT_TRUE(bars.empty()) << bars.begin()->first.first;
}

// As a GPU copies experts to slots, with groups that may stay empty.
TEST(TracedCalls, GroupsWithExpertsAreKept) {
  const ExpertShape shape{.layers = 2, .experts = 6, .hidden = 32, .width = 16};
  const ExpertOverlapOptions options{.device = Device::cpu(),
                                     .shape = shape,
                                     .choices = 3,
                                     .sequence = 1,
                                     .from = ExpertsFrom::memory};
  const detail::ExpertWork work(options);
  const detail::DecodeSteps steps(options, work, 6);
  const auto traced = std::make_shared<detail::TracedSteps>(Device::cpu(), shape.experts);
  const std::size_t block = ExpertStore::block_bytes(shape);
  StreamedExperts experts({.store = work.store(),
                           .device = Device::cpu(),
                           .device_bytes = StreamedExperts::least_bytes(shape) + 2 * block,
                           .records = 12},
                          {.steps = traced, .copy_on_cpu = true});
  const Stream stream(Device::cpu());
  traced->begin();
  for (std::size_t step = 0; step < 6; ++step) {
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      experts.forward(layer, steps.call(step, layer), stream);
    }
  }
  stream.synchronize();
  experts.synchronize();
  EXPECT_TRUE(steps.is_right(5, stream));
  const auto calls = traced->end(experts.records());
  ASSERT_EQ(calls.size(), 12U);
  std::size_t with_loads = 0, before_end = 0;
  for (const detail::TracedCall& call : calls) {
    EXPECT_EQ(call.groups.size(), call.record.groups);
    EXPECT_FALSE(call.whole);
    with_loads += call.record.misses > 0 ? 1 : 0;
    for (const detail::TracedCall::Group& group : call.groups) {
      EXPECT_LE(group.arrived_ns, group.products.begin_ns);
      EXPECT_LE(group.products.begin_ns, group.products.end_ns);
      before_end += group.products.end_ns > call.record.enqueued_ns ? 1 : 0;
    }
  }
  EXPECT_GT(with_loads, 0U);
  EXPECT_GT(before_end, 0U);
}

// Counts events that are made while the stream of a call waits for copies.
class WatchedSteps final : public detail::TracedSteps {
 public:
  using TracedSteps::TracedSteps;

  void plan(const MoeOptions& options, const Stream& stream) override {
    TracedSteps::plan(options, stream);
    planned_ = Device::cpu().allocations();
  }
  void take_slots(const std::int32_t* from, const TensorView& slots,
                  const Stream& stream) override {
    TracedSteps::take_slots(from, slots, stream);
    groups += 1;
  }
  void combine(const MoeOptions& options, const Stream& stream) override {
    made_behind_waits += Device::cpu().allocations() - planned_;
    TracedSteps::combine(options, stream);
  }

  std::uint64_t made_behind_waits = 0, groups = 0;

 private:
  std::uint64_t planned_ = 0;
};

TEST(TracedCalls, MakeNoEventsBehindWaits) {
  const ExpertShape shape{.layers = 1, .experts = 60, .hidden = 16, .width = 8};
  const ExpertOverlapOptions options{.device = Device::cpu(),
                                     .shape = shape,
                                     .choices = 16,
                                     .batch = 4,
                                     .sequence = 1,
                                     .from = ExpertsFrom::memory};
  const detail::ExpertWork work(options);
  const detail::DecodeSteps steps(options, work, 4);
  const auto watched = std::make_shared<WatchedSteps>(Device::cpu(), shape.experts);
  StreamedExperts experts({.store = work.store(),
                           .device = Device::cpu(),
                           .device_bytes = StreamedExperts::least_bytes(shape),
                           .records = 4},
                          {.steps = watched, .copy_on_cpu = true});
  const Stream stream(Device::cpu());
  const auto call = [&](std::size_t step) {
    experts.forward(0, steps.call(step, 0), stream);
    stream.synchronize();
    experts.synchronize();
  };
  call(0);  // makes what every call needs
  watched->made_behind_waits = watched->groups = 0;
  watched->begin();
  for (std::size_t step = 1; step < 4; ++step) call(step);
  EXPECT_EQ(watched->made_behind_waits, 0U);
  EXPECT_EQ(watched->groups, 3 * (detail::most_expert_groups - 1)) << "as many as there can be";
  EXPECT_EQ(watched->end(experts.records()).size(), 3U);
}

TEST_F(ExpertsFromADisk, TheReportAndItsPageShowTheDecodeSteps) {
  ExpertOverlapOptions options = small();
  options.sweep_depths = {1};
  options.decode_steps = 6;
  options.decode_cache = 3;
  const auto r = measure_expert_overlap(options);
  const std::string text = as_json(*r, Device::cpu(), true);
  const auto document = nlohmann::ordered_json::parse(text);
  EXPECT_EQ(document["decode"]["slots"], 3);
  EXPECT_EQ(document["decode"]["steps"].size(), 6U);
  EXPECT_EQ(document["decode"]["link"], "disk");
  EXPECT_EQ(document["timelines"].size(), 4U) << "columns and three runs";
  EXPECT_EQ(document["decode"]["timelines"].size(), 2U);
  const auto without = nlohmann::json::parse(as_json(*r, Device::cpu(), false));
  EXPECT_FALSE(without["decode"].contains("timelines"));
  Page page = make_page("experts");
  add_document(page, text, "report.json");
  const auto sections = test::data_of(page)["sections"];
  const auto titled = [&](const char* title) {
    const auto found = std::ranges::find_if(
        sections, [&](const auto& section) { return section["title"] == title; });
    EXPECT_NE(found, sections.end()) << title;
    return *found;
  };
  const auto plot = titled("Cache hits over tokens");
  ASSERT_EQ(plot["series"].size(), 3U);
  EXPECT_EQ(plot["series"][0]["name"], "hits");
  EXPECT_EQ(plot["series"][1]["points"].size(), 6U);
  EXPECT_EQ(plot["series"][1]["points"][5][1], document["decode"]["steps"][5][0]);
  EXPECT_EQ(plot["series"][2]["points"][0][0], 4) << "the fourth step is the first that counts";
  EXPECT_EQ(plot["markers"][0]["x"], 4);
  EXPECT_EQ(titled("Timeline of a few tokens")["runs"].size(), 1U);
  const auto sweep = titled("Time over slots");
  ASSERT_EQ(sweep["series"][0]["points"].size(), 2U) << "one of the sweep and the one that is used";
  EXPECT_EQ(sweep["series"][0]["points"][0][0], 1);
  EXPECT_EQ(sweep["series"][0]["points"][1][0], 3);
  EXPECT_EQ(sweep["markers"][0]["x"], 3);
  const std::string facts = titled("Decode steps with a cache")["rows"].dump();
  for (const char* part : {"hit rate", "best fixed set", "offline optimum", "3 experts",
                           "share of the disk", "time of a step"}) {
    EXPECT_NE(facts.find(part), std::string::npos) << part;
  }
  EXPECT_NE(titled("How close to the floor")["rows"].dump().find("share of the disk"),
            std::string::npos);

  // What is wrong, and the place that the error names.
  const std::pair<std::pair<const char*, const char*>, const char*> all[] = {
      {{"/decode", "7"}, "r.decode"},
      {{"/decode/steps", "[]"}, "r.decode.steps"},
      {{"/decode/steps/2", "[1, 1, 0, 0, 0]"}, "r.decode.steps[2]"},
      {{"/decode/steps/2/0", "100"}, "r.decode.steps[2][0]"},
      {{"/decode/steps/3/1", "-1"}, "r.decode.steps[3][1]"},
      {{"/decode/steps/3/5", "0"}, "r.decode.steps[3][5]"},
      {{"/decode/counted_from", "6"}, "r.decode.counted_from"},
      {{"/decode/hit_rate", "1.5"}, "r.decode.hit_rate"},
      {{"/decode/best_fixed_set", "\"x\""}, "r.decode.best_fixed_set"},
      {{"/decode/slots", "0"}, "r.decode.slots"},
      {{"/decode/link", "\"tape\""}, "r.decode.link"},
      {{"/decode/share_of_link", "-1"}, "r.decode.share_of_link"},
      {{"/decode/timelines/decode/0/0", "\"warp\""}, "r.decode.timelines.decode[0][0]"},
      {{"/timelines/StreamedExperts/0/4", "-5"}, "r.timelines.StreamedExperts[0][4]"}};
  for (const auto& [change, named] : all) {
    auto broken = document;
    broken[nlohmann::ordered_json::json_pointer(change.first)] =
        nlohmann::json::parse(change.second);
    Page other = make_page("experts");
    try {
      add_document(other, broken.dump(), "r");
      ADD_FAILURE() << "accepted " << change.first << " = " << change.second;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), named) << error.what();
    }
  }
}

TEST_F(ExpertsFromADisk, AKernelTraceIsShownWhereOneIsGiven) {
  const auto r = measure_expert_overlap(small());
  const std::string report = as_json(*r, Device::cpu(), true);
  const PageRun run{
      .name = "moe",
      .entries = {{Engine::compute, "up", 0, 0, 100}},
      .kernels = {
          {.name = "up",
           .stage = "up",
           .roles = {
               .names = {"loader"},
               .spans = {{.block = 0, .sm = 0, .role = 0, .tile = 0, .begin_ns = 10, .end_ns = 20}},
               .kernel = {0, 90}}}}};
  const std::string trace = trace_json("Inside the products", {&run, 1}, Device::cpu());
  const auto count = [](const std::string& document) {
    Page page = make_page("experts");
    add_document(page, document, "r");
    std::size_t kernels = 0;
    const auto sections = test::data_of(page)["sections"];
    for (const auto& section : sections) {
      if (section["type"] != "timelines") continue;
      for (const auto& each : section["runs"]) {
        if (each.contains("kernels")) kernels += each["kernels"].size();
      }
    }
    return kernels;
  };
  EXPECT_EQ(count(report), 0U);
  EXPECT_EQ(count(with_kernel_trace(report, trace, "t")), 1U);
  const auto refused = [&](const std::string& given) {
    try {
      with_kernel_trace(report, given, "t");
    } catch (const InvalidArgument& error) {
      return error.argument();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused(report), "t.kind");
  auto broken = nlohmann::ordered_json::parse(trace);
  broken["kernels"][0]["roles"] = nlohmann::json::array();
  EXPECT_EQ(refused(broken.dump()), "t.kernels[0].roles");
  broken["kernels"] = nlohmann::json::array();
  EXPECT_EQ(refused(broken.dump()), "t.kernels");
  EXPECT_EQ(refused("{"), "t");
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
  EXPECT_EQ(refused([](auto& o) { o.decode_steps = 100'001; }), "decode_steps");
  EXPECT_EQ(refused([](auto& o) { o.decode_cache = std::size_t{1} << 40; }), "decode_cache");
  EXPECT_EQ(refused([](auto& o) { o.from = ExpertsFrom::memory; }), "from");
  EXPECT_TRUE(directory.empty());
}

TEST_F(ExpertsFromADisk, StopsAnywhereAndLeavesNothing) {
  for (const char* where :
       {"making the weights", "checking the results", "timing", "sweep", "decode steps"}) {
    std::stop_source source;
    ExpertOverlapOptions options = small();
    options.sweep_depths = {1};
    options.decode_steps = 2;
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
