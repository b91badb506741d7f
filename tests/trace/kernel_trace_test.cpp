// Traces that the kit's own writing side made over simulated clocks, read back.
#include "penstock/trace/kernel_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "penstock/base/error.h"
#include "support/fake_sm.h"

namespace ps {
namespace {

using test::FakeSm;
using test::FakeSource;
using test::FakeTimer;
using test::FakeTrace;

const std::vector<std::string> roles = {"loader", "compute"};

// A kernel of one block a multiprocessor: each loads a tile for 2 us while it computes another for
// 3 us, `tiles` times, from `begin_ns` on.
struct Kernel {
  std::vector<FakeSm> sms = {{.number = 3}};
  FakeTimer timer{};
  unsigned tiles = 10;
  unsigned capacity = 32;
  double begin_ns = 10'000;
  bool ends = true;

  std::vector<std::byte> run() const {
    const auto blocks = static_cast<unsigned>(sms.size());
    FakeTrace trace({.blocks = blocks, .roles = 2, .capacity = capacity});
    for (unsigned block = 0; block < blocks; ++block) {
      FakeSource::Thread thread{
          .sm = sms[block], .timer = timer, .ns = begin_ns, .block = block, .blocks = blocks};
      thread.random.seed(block + 1);
      trace.run(
          thread, [&](FakeTrace::Block& mine, FakeSource::Thread& t) { work(mine, t); }, ends);
    }
    return trace.bytes();
  }

  // Every block starts a tile at the same times, so that the expected result is known.
  static constexpr double first_ns = 40'000, each_ns = 5'000;

  void work(FakeTrace::Block& block, FakeSource::Thread& t) const {
    auto loader = block.role(0, true), compute = block.role(1, true);
    for (unsigned tile = 0; tile < tiles; ++tile) {
      t.ns = begin_ns + first_ns + tile * each_ns - t.timer.look_ns;  // so that it is read there
      const auto start = loader.now();
      t.ns += 2'000 - t.timer.look_ns;
      loader.record(tile, start);
      const auto next = compute.now();
      t.ns += 3'000 - 2 * t.timer.look_ns;
      compute.record(100 + tile, next);
    }
    t.ns = begin_ns + first_ns + tiles * each_ns;
  }
};

std::string refusal_of(const std::vector<std::byte>& bytes,
                       const std::vector<std::string>& names = roles) {
  try {
    const KernelTrace trace(bytes, names);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

testing::AssertionResult near(std::int64_t time, double expected, double by) {
  const double away = std::abs(static_cast<double>(time) - expected);
  if (away <= by) return testing::AssertionSuccess();
  return testing::AssertionFailure() << time << " ns is " << away << " ns from " << expected;
}
testing::AssertionResult near(std::int64_t time, std::int64_t expected, double by) {
  return near(time, static_cast<double>(expected), by);
}

// The spans of a role of a block, in order.
std::vector<RoleSpan> of(const KernelRoles& shown, unsigned block, unsigned role) {
  std::vector<RoleSpan> spans = shown.spans;
  std::erase_if(spans, [&](const RoleSpan& s) { return s.block != block || s.role != role; });
  return spans;
}

TEST(KernelTrace, TellsEverySpanAtItsTime) {
  const KernelTrace trace(Kernel{}.run(), roles);
  ASSERT_EQ(trace.blocks().size(), 1U);
  EXPECT_EQ(trace.blocks()[0].sm, 3U);
  EXPECT_EQ(trace.blocks()[0].records, 20U);
  EXPECT_TRUE(trace.blocks()[0].aligned);
  EXPECT_EQ(trace.grid(), 1U);
  EXPECT_EQ(trace.pairs(), 8U);
  EXPECT_EQ(trace.tick_ns(), 1000);
  EXPECT_GT(trace.error().max_ns, 0);
  EXPECT_LT(trace.error().max_ns, 60);
  EXPECT_LE(trace.error().median_ns, trace.error().max_ns);

  const KernelRoles shown = trace.roles();
  EXPECT_EQ(shown.names, roles);
  EXPECT_EQ(shown.lost, 0U);
  ASSERT_EQ(shown.spans.size(), 20U);
  const auto loads = of(shown, 0, 0), products = of(shown, 0, 1);
  for (unsigned tile = 0; tile < 10; ++tile) {
    EXPECT_EQ(loads[tile].tile, tile);
    EXPECT_EQ(products[tile].tile, 100 + tile);
    EXPECT_EQ(loads[tile].sm, 3U);
    EXPECT_TRUE(near(loads[tile].begin_ns - loads[0].begin_ns, tile * Kernel::each_ns, 30));
    EXPECT_TRUE(near(loads[tile].end_ns - loads[tile].begin_ns, 2'000.0, 30));
    EXPECT_TRUE(near(products[tile].end_ns - products[tile].begin_ns, 3'000.0, 60));
  }
}

// The same moment on all multiprocessors, whatever their clocks say.
TEST(KernelTrace, AlignsClocksOfAnyRateAndStart) {
  Kernel kernel{.sms = {}};
  std::mt19937_64 random(7);
  for (unsigned sm = 0; sm < 132; ++sm) {
    kernel.sms.push_back({.number = sm * 2,
                          .ghz = 1.2 + 0.7 * static_cast<double>(sm) / 132,
                          .offset = random() >> 8});
  }
  for (const double tick : {1.0, 32.0, 1000.0, 1024.0}) {
    SCOPED_TRACE(tick);
    kernel.timer.tick_ns = tick;
    const KernelTrace trace(kernel.run(), roles);
    EXPECT_EQ(trace.blocks().size(), 132U);
    EXPECT_LT(trace.error().max_ns, 90);
    EXPECT_LT(trace.error().median_ns, 30);
    std::vector<unsigned> all(132);
    for (unsigned block = 0; block < 132; ++block) all[block] = block;
    const KernelRoles shown = trace.roles({.blocks = all});
    ASSERT_EQ(shown.spans.size(), 132U * 20);
    const auto first = static_cast<double>(of(shown, 0, 0)[0].begin_ns);
    for (unsigned block = 0; block < 132; ++block) {
      const auto loads = of(shown, block, 0);
      for (unsigned tile = 0; tile < 10; ++tile) {
        // The error that is shown bounds the one that was made, to within a look at the clock.
        EXPECT_TRUE(near(loads[tile].begin_ns, first + tile * Kernel::each_ns,
                         2 * trace.error().max_ns + 40));
      }
    }
  }
}

TEST(KernelTrace, AFewPairsThatAreFarOffDoNotBendTheLine) {
  Kernel kernel;
  auto bytes = kernel.run();
  const KernelRoles before = KernelTrace(bytes, roles).roles();
  // One pair at the end is a millisecond late: its thread was held up.
  KernelTraceBlock head;
  std::memcpy(&head, bytes.data() + sizeof(KernelTraceHead), sizeof(head));
  head.at_end[1].ns += 1'000'000;
  std::memcpy(bytes.data() + sizeof(KernelTraceHead), &head, sizeof(head));
  const KernelTrace trace(bytes, roles);
  const KernelRoles after = trace.roles();
  EXPECT_NEAR(trace.error().max_ns, 1e6, 100) << "and it is shown";
  EXPECT_LT(trace.error().median_ns, 60);
  for (std::size_t i = 0; i < before.spans.size(); ++i) {
    EXPECT_TRUE(near(after.spans[i].begin_ns, before.spans[i].begin_ns, 60));
  }
}

TEST(KernelTrace, HeldUpThreadsAreToldInTheError) {
  Kernel kernel{.sms = {{.number = 0}, {.number = 1, .ghz = 1.3}, {.number = 2, .ghz = 1.9}},
                .timer = {.tick_ns = 1000, .look_ns = 20, .held_up_ns = 300}};
  const KernelTrace trace(kernel.run(), roles);
  EXPECT_LT(trace.error().median_ns, 100);
  EXPECT_LT(trace.error().max_ns, 1000);
}

TEST(KernelTrace, BlocksOfOneMultiprocessorShareItsClock) {
  FakeTrace trace({.blocks = 40, .roles = 1, .capacity = 4});
  for (unsigned block = 0; block < 40; ++block) {
    const unsigned turn = block / 2;
    const FakeSource::Thread thread{.sm = {.number = block % 2, .ghz = block % 2 ? 1.5 : 1.8},
                                    .timer = {.tick_ns = 1000},
                                    .ns = 1'000.0 + turn * 20'000.0,
                                    .block = block,
                                    .blocks = 40};
    trace.run(thread, [](FakeTrace::Block& mine, FakeSource::Thread& t) {
      auto role = mine.role(0, true);
      const auto start = role.now();
      t.ns += 5'000;
      role.record(0, start);
    });
  }
  const KernelTrace read(trace.bytes(), {"all"});
  EXPECT_EQ(read.pairs(), 320U);
  EXPECT_LT(read.error().max_ns, 90);
  // Without a choice, the first few of the first multiprocessor.
  const KernelRoles shown = read.roles();
  ASSERT_EQ(shown.spans.size(), 8U);
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(shown.spans[i].block, 2 * i);
  EXPECT_EQ(read.roles({.sm = 1, .most_blocks = 3}).spans.size(), 3U);
  EXPECT_EQ(read.roles({.sm = 1, .most_blocks = 3}).spans[2].block, 5U);
  EXPECT_EQ(read.roles({.blocks = {39, 0}}).spans.size(), 2U);
  EXPECT_THROW(read.roles({.blocks = {40}}), InvalidArgument);
  EXPECT_THROW(read.roles({.sm = 2}), InvalidArgument);
}

// ---- pairs that are missing ------------------------------------------------------------------

TEST(KernelTrace, ATimerThatStandsStillAlignsNothing) {
  const std::string refusal = refusal_of(Kernel{.timer = {.tick_ns = 0}}.run());
  EXPECT_NE(refusal.find("no clock can be aligned"), std::string::npos) << refusal;
}

TEST(KernelTrace, PairsAtOneEndOnlyTellNoRate) {
  const std::string refusal = refusal_of(Kernel{.ends = false}.run());
  EXPECT_NE(refusal.find("too close to each other"), std::string::npos) << refusal;
}

TEST(KernelTrace, ABlockThatNeverEndedUsesTheOthersRate) {
  FakeTrace trace({.blocks = 3, .roles = 2, .capacity = 16});
  const Kernel kernel;
  for (unsigned block = 0; block < 3; ++block) {
    const FakeSource::Thread thread{.sm = {.number = block, .offset = 1'000'000U * block},
                                    .timer = {},
                                    .ns = kernel.begin_ns,
                                    .block = block,
                                    .blocks = 3};
    trace.run(
        thread, [&](FakeTrace::Block& mine, FakeSource::Thread& t) { kernel.work(mine, t); },
        block != 1);
  }
  const KernelTrace read(trace.bytes(), roles);
  const KernelRoles shown = read.roles({.blocks = {0, 1, 2}});
  const auto other = of(shown, 0, 0), mine = of(shown, 1, 0);
  ASSERT_EQ(mine.size(), 10U);
  for (unsigned tile = 0; tile < 10; ++tile) {
    EXPECT_TRUE(near(mine[tile].begin_ns, other[tile].begin_ns, 150));
  }
}

TEST(KernelTrace, AMultiprocessorWithoutPairsIsLeftOutAndSaysSo) {
  FakeTrace trace({.blocks = 2, .roles = 2, .capacity = 16});
  const Kernel kernel;
  for (unsigned block = 0; block < 2; ++block) {
    const FakeSource::Thread thread{.sm = {.number = block},
                                    .timer = {.tick_ns = block == 0 ? 0.0 : 1000.0},
                                    .ns = kernel.begin_ns,
                                    .block = block,
                                    .blocks = 2};
    trace.run(thread, [&](FakeTrace::Block& mine, FakeSource::Thread& t) { kernel.work(mine, t); });
  }
  const KernelTrace read(trace.bytes(), roles);
  EXPECT_FALSE(read.blocks()[0].aligned);
  EXPECT_EQ(read.blocks()[0].records, 20U);
  EXPECT_TRUE(read.blocks()[1].aligned);
  EXPECT_EQ(read.roles().spans[0].block, 1U);
  EXPECT_THROW(read.roles({.blocks = {0}}), InvalidArgument);
  EXPECT_THROW(read.roles({.sm = 0}), InvalidArgument);
}

// ---- inside an outer timeline ----------------------------------------------------------------

TEST(KernelTrace, IsMovedIntoTheKernelsInterval) {
  const KernelTrace trace(Kernel{}.run(), roles);
  const std::int64_t length = trace.span().end_ns;
  const Span inside{1'000'000, 1'000'000 + length + 3'000};
  const KernelRoles alone = trace.roles(), shown = trace.roles({.inside = inside});
  EXPECT_EQ(alone.kernel.begin_ns, 0);
  EXPECT_EQ(shown.kernel.begin_ns, 1'001'500);
  EXPECT_EQ(shown.kernel.end_ns, 1'001'500 + length);
  EXPECT_EQ(shown.place_ns, 1'500);
  for (std::size_t i = 0; i < shown.spans.size(); ++i) {
    EXPECT_EQ(shown.spans[i].begin_ns, alone.spans[i].begin_ns + 1'001'500);
    EXPECT_GE(shown.spans[i].begin_ns, inside.begin_ns);
    EXPECT_LE(shown.spans[i].end_ns, inside.end_ns);
  }
  EXPECT_NE(describe(shown).find("placed to within 1.5 us"), std::string::npos) << describe(shown);
}

TEST(KernelTrace, StandsAtTheBeginWhereLaterBlocksWereNotTraced) {
  FakeTrace buffer({.blocks = 1, .roles = 2, .capacity = 16});
  const Kernel kernel;
  buffer.run({.sm = {}, .timer = {}, .ns = kernel.begin_ns, .block = 0, .blocks = 1000},
             [&](FakeTrace::Block& mine, FakeSource::Thread& t) { kernel.work(mine, t); });
  const KernelTrace trace(buffer.bytes(), roles);
  EXPECT_EQ(trace.grid(), 1000U);
  const KernelRoles shown = trace.roles({.inside = Span{500, 500 + 10 * trace.span().end_ns}});
  EXPECT_EQ(shown.kernel.begin_ns, 500);
  EXPECT_EQ(shown.place_ns, 9 * trace.span().end_ns);
}

TEST(KernelTrace, AnIntervalThatIsTooShortIsRefused) {
  const KernelTrace trace(Kernel{}.run(), roles);
  const std::int64_t length = trace.span().end_ns;
  // By less than the clocks can tell: then it stands out at both ends alike.
  const KernelRoles shown = trace.roles({.inside = Span{0, length - 1'000}});
  EXPECT_EQ(shown.kernel.begin_ns, -500);
  for (const Span& bad : {Span{0, length / 2}, Span{5, 4}, Span{0, 0},
                          Span{std::numeric_limits<std::int64_t>::min(), 0},
                          Span{0, std::numeric_limits<std::int64_t>::max()}}) {
    EXPECT_THROW(trace.roles({.inside = bad}), InvalidArgument) << bad.begin_ns;
  }
}

TEST(KernelTrace, TellsATimeline) {
  const KernelTrace trace(Kernel{.tiles = 2}.run(), roles);
  Timeline timeline;
  record_roles(trace.roles(), timeline);
  const std::vector<TimelineEntry> entries = timeline.entries();
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries[0].stage, "block 0, loader");
  EXPECT_EQ(entries[1].stage, "block 0, compute");
  EXPECT_EQ(entries[1].item, 100U);
  EXPECT_EQ(entries[0].engine, Engine::compute);
  EXPECT_NEAR(timeline.busy_seconds(Engine::compute), 2 * 5'000e-9, 200e-9);
}

TEST(KernelTrace, SaysWhatDidNotFit) {
  const KernelTrace trace(Kernel{.tiles = 10, .capacity = 4}.run(), roles);
  EXPECT_EQ(trace.blocks()[0].records, 8U);
  EXPECT_EQ(trace.blocks()[0].lost, 12U);
  const KernelRoles shown = trace.roles();
  EXPECT_EQ(shown.spans.size(), 8U);
  EXPECT_EQ(shown.lost, 12U);
  EXPECT_NE(describe(shown).find("12 records did not fit"), std::string::npos);
}

// ---- buffers that are none -------------------------------------------------------------------

TEST(KernelTrace, RefusesABufferOfAnyOtherSize) {
  const std::vector<std::byte> whole = Kernel{.tiles = 2, .capacity = 2}.run();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_NE(refusal_of(cut), "accepted") << size;
  }
  std::vector<std::byte> longer = whole;
  longer.push_back({});
  EXPECT_NE(refusal_of(longer), "accepted");
  EXPECT_EQ(refusal_of(whole), "accepted");
}

TEST(KernelTrace, SaysWhenNothingWroteToIt) {
  EXPECT_NE(refusal_of(std::vector<std::byte>(4096)).find("no traced kernel"), std::string::npos);
}

TEST(KernelTrace, NamesMustMatchTheRoles) {
  const auto bytes = Kernel{}.run();
  EXPECT_NE(refusal_of(bytes, {"one"}).find("2 names, one per role"), std::string::npos);
  EXPECT_NE(refusal_of(bytes, {"one", "two", "three"}).find("2 names, one per role"),
            std::string::npos);
}

// One value of the layout put in the place of another.
struct Spoilt {
  const char* named;  // in the refusal
  std::function<void(KernelTraceHead&, KernelTraceBlock&, KernelTraceRole&, KernelTraceRecord&)> by;
};

TEST(KernelTrace, RefusesNumbersThatMakeNoSense) {
  using Head = KernelTraceHead&;
  using Block = KernelTraceBlock&;
  using Role = KernelTraceRole&;
  using Record = KernelTraceRecord&;
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  const Spoilt all[] = {
      {"begin with", [](Head h, Block, Role, Record) { h.magic ^= 1; }},
      {"version", [](Head h, Block, Role, Record) { h.version = 2; }},
      {"roles", [](Head h, Block, Role, Record) { h.roles = 0; }},
      {"0 records per role", [](Head h, Block, Role, Record) { h.capacity = 0; }},
      {"bytes", [](Head h, Block, Role, Record) { h.blocks = 0xffffffff; }},
      {"2^64", [](Head h, Block, Role, Record) { h.blocks = h.roles = h.capacity = 0xffffffff; }},
      {"grid of 0", [](Head h, Block, Role, Record) { h.grid = 0; }},
      {"state 7", [](Head, Block b, Role, Record) { b.state = static_cast<KernelTraceState>(7); }},
      {"traced blocks only", [](Head, Block b, Role, Record) { b.state = KernelTraceState::none; }},
      {"at the end", [](Head, Block b, Role, Record) { b.state = KernelTraceState::begun; }},
      {"number 4", [](Head, Block b, Role, Record) { b.block = 4; }},
      {"multiprocessor", [](Head, Block b, Role, Record) { b.sm = b.end_sm = 70'000; }},
      {"ended on 9", [](Head, Block b, Role, Record) { b.end_sm = 9; }},
      {"not before its begin", [](Head, Block b, Role, Record) { b.end = b.begin - 1; }},
      {"not before its begin", [](Head, Block b, Role, Record) { b.begin = huge; }},
      {"clock and a timer", [](Head, Block b, Role, Record) { b.at_begin[2].ns = 0; }},
      {"clock and a timer", [](Head, Block b, Role, Record) { b.at_end[3].ns = huge; }},
      {"clock and a timer", [](Head, Block b, Role, Record) { b.at_end[3].clock = huge; }},
      {"times of one kernel", [](Head, Block b, Role, Record) { b.at_begin[0].ns = 1; }},
      {"clocks of one kernel", [](Head, Block b, Role, Record) { b.at_end[3].clock = huge >> 2; }},
      {"at most 2", [](Head, Block, Role r, Record) { r.count = 3; }},
      {"at most 2", [](Head, Block, Role r, Record) { r.count = 1, r.lost = 1; }},
      {"clocks away", [](Head, Block, Role, Record r) { r.start = huge; }},
      {"clocks away", [](Head, Block, Role, Record r) { r.start = 0; }},
      {"clocks of 0.02",
       [](Head, Block b, Role, Record) {
         for (ClockPair& pair : b.at_end) pair.ns += 100'000'000;
       }},
      {"clocks of 0.02", [](Head, Block b, Role, Record) {
         for (ClockPair& pair : b.at_end) pair.ns -= 10'000'000;
       }}};
  Kernel kernel{.tiles = 2, .capacity = 2};
  kernel.sms[0].offset = std::uint64_t{1} << 45;
  const std::vector<std::byte> good = kernel.run();
  ASSERT_EQ(refusal_of(good), "accepted");
  for (const Spoilt& spoilt : all) {
    std::vector<std::byte> bytes = good;
    KernelTraceHead head;
    KernelTraceBlock block;
    KernelTraceRole role;
    KernelTraceRecord record;
    const auto all_parts = [&](const auto& act) {
      std::byte* at = bytes.data();
      const auto part = [&](auto& value) {
        act(at, &value, sizeof(value));
        at += sizeof(value);
      };
      part(head), part(block), part(role), part(record);
    };
    all_parts([](std::byte* at, void* value, std::size_t n) { std::memcpy(value, at, n); });
    spoilt.by(head, block, role, record);
    all_parts([](std::byte* at, const void* value, std::size_t n) { std::memcpy(at, value, n); });
    EXPECT_NE(refusal_of(bytes).find(spoilt.named), std::string::npos)
        << spoilt.named << ": " << refusal_of(bytes);
  }
}

TEST(KernelTrace, SpoiltAnywhereItNeverFailsInAnotherWay) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const Kernel kernel{.sms = {{.number = 0}, {.number = 1, .ghz = 1.1}}, .tiles = 3, .capacity = 4};
  const std::vector<std::byte> good = kernel.run();
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes = good;
    for (unsigned i = 0; i <= round % 8U; ++i) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    try {
      const KernelTrace trace(bytes, roles);
      const KernelRoles shown = trace.roles({.inside = Span{0, 1'000'000'000}});
      for (const RoleSpan& span : shown.spans) ASSERT_LT(span.role, 2U);
      EXPECT_FALSE(describe(shown).empty());
    } catch (const InvalidArgument&) {
    }
  }
}

}  // namespace
}  // namespace ps
