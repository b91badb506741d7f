// The writing side of the in-kernel trace, over simulated clocks.
#include "penstock/kit/trace.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "penstock/base/error.h"
#include "support/fake_sm.h"

namespace ps::kit {
namespace {

using test::FakeSource;
using test::FakeTrace;

TEST(TraceBytes, AreThoseOfAllParts) {
  EXPECT_EQ(trace_bytes({.blocks = 1, .roles = 1, .capacity = 1}), 32U + 160 + 16 + 16);
  EXPECT_EQ(trace_bytes({.blocks = 132, .roles = 3, .capacity = 1000}),
            32U + 132 * (160 + 3 * (16 + 16000)));
}

TEST(TraceBytes, RefusesShapesWithoutRoom) {
  const std::pair<TraceShape, const char*> all[] = {{{0, 1, 1}, "shape.blocks"},
                                                    {{1, 0, 1}, "shape.roles"},
                                                    {{1, 1, 0}, "shape.capacity"},
                                                    {{~0U, ~0U, ~0U}, "shape"}};
  for (const auto& [shape, named] : all) {
    try {
      trace_bytes(shape);
      ADD_FAILURE() << "accepted " << named;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), named);
    }
  }
}

TEST(TraceBuffer, RefusesNoMemoryAndOddMemory) {
  alignas(16) std::byte memory[1024];
  const TraceShape shape{1, 1, 1};
  EXPECT_THROW(TraceBuffer<true>(nullptr, shape), InvalidArgument);
  EXPECT_THROW(TraceBuffer<true>(memory + 8, shape), InvalidArgument);
  EXPECT_THROW(TraceBuffer<true>(memory, {}), InvalidArgument);
  EXPECT_NO_THROW(TraceBuffer<true>(memory, shape));
}

TEST(TraceBuffer, SlicesFillTheMemoryAndNeverMeet) {
  const TraceShape shape{5, 3, 7};
  const FakeTrace trace(shape);
  const auto* const memory = reinterpret_cast<const std::byte*>(trace.buffer().head());
  std::size_t next = sizeof(KernelTraceHead);
  for (unsigned block = 0; block < shape.blocks; ++block, next += sizeof(KernelTraceBlock)) {
    EXPECT_EQ(reinterpret_cast<const std::byte*>(trace.buffer().block(block)) - memory,
              static_cast<std::ptrdiff_t>(next));
  }
  for (unsigned block = 0; block < shape.blocks; ++block) {
    for (unsigned role = 0; role < shape.roles; ++role) {
      EXPECT_EQ(reinterpret_cast<const std::byte*>(trace.buffer().slice(block, role)) - memory,
                static_cast<std::ptrdiff_t>(next));
      next += sizeof(KernelTraceRole) + shape.capacity * sizeof(KernelTraceRecord);
    }
  }
  EXPECT_EQ(next, trace_bytes(shape));
}

TEST(Trace, SwitchedOffIsEmpty) {
  using Off = BlockTrace<false, FakeSource>;
  static_assert(std::is_empty_v<TraceBuffer<false>> && std::is_empty_v<Off>);
  static_assert(std::is_empty_v<RoleTrace<false, FakeSource>>);
  static_assert(std::is_empty_v<RoleTrace<false, FakeSource>::Moment>);
  static_assert(std::is_trivially_copyable_v<TraceBuffer<true>>, "it is a kernel's argument");
  Off off(TraceBuffer<false>(nullptr, {}));  // the same words, and nothing happens
  off.begin(true);
  auto role = off.role(0, true);
  role.record(3, role.now());
  role.record(3, role.now(), role.now());
  off.end(true);
}

TEST(Trace, WritesItsRecordsInOrder) {
  FakeTrace trace({2, 2, 3});
  const FakeSource::Thread thread{
      .sm = {.number = 9}, .timer = {}, .ns = 500, .block = 1, .blocks = 4};
  trace.run(thread, [](FakeTrace::Block& block, FakeSource::Thread& t) {
    auto role = block.role(1, true);
    for (unsigned tile = 0; tile < 2; ++tile) {
      const auto start = role.now();
      t.ns += 1000;
      role.record(10 + tile, start);
    }
  });
  const auto& buffer = trace.buffer();
  EXPECT_EQ(buffer.head()->magic, 0U) << "the first block writes it, and this is another";
  const KernelTraceBlock& head = *buffer.block(1);
  EXPECT_EQ(head.state, KernelTraceState::ended);
  EXPECT_EQ(head.block, 1U);
  EXPECT_EQ(head.sm, 9U);
  EXPECT_EQ(head.end_sm, 9U);
  EXPECT_LT(head.begin, head.end);
  const KernelTraceRole& role = *buffer.slice(1, 1);
  EXPECT_EQ(role.count, 2U);
  EXPECT_EQ(role.lost, 0U);
  const auto* records = reinterpret_cast<const KernelTraceRecord*>(&role + 1);
  EXPECT_EQ(records[0].tile, 10U);
  EXPECT_EQ(records[1].tile, 11U);
  EXPECT_NEAR(records[0].length, 1025 * 1.7, 40);
  EXPECT_GT(records[1].start, records[0].start + records[0].length);
  EXPECT_EQ(buffer.slice(1, 0)->count, 0U);
  EXPECT_EQ(buffer.block(0)->state, KernelTraceState::none);
}

TEST(Trace, CountsWhatDoesNotFitAndWritesOverNothing) {
  FakeTrace trace({1, 2, 4});
  trace.run({.sm = {}, .timer = {}}, [](FakeTrace::Block& block, FakeSource::Thread&) {
    auto second = block.role(1, true);
    second.record(77, second.now());
    auto first = block.role(0, true);
    for (unsigned tile = 0; tile < 11; ++tile) first.record(tile, first.now());
  });
  const KernelTraceRole& first = *trace.buffer().slice(0, 0);
  EXPECT_EQ(first.count, 4U);
  EXPECT_EQ(first.lost, 7U);
  const auto* records = reinterpret_cast<const KernelTraceRecord*>(&first + 1);
  for (unsigned tile = 0; tile < 4; ++tile) EXPECT_EQ(records[tile].tile, tile);
  EXPECT_EQ(trace.buffer().slice(0, 1)->count, 1U);
  EXPECT_EQ(reinterpret_cast<const KernelTraceRecord*>(trace.buffer().slice(0, 1) + 1)->tile, 77U);
}

TEST(Trace, OnlyTheChosenThreadOfATracedRoleAndBlockWrites) {
  FakeTrace trace({1, 1, 4});
  const auto record = [](FakeTrace::Block& block, unsigned role, bool writes) {
    auto mine = block.role(role, writes);
    mine.record(1, mine.now());
  };
  FakeSource::Thread inside{.sm = {}, .timer = {}}, outside{.sm = {}, .timer = {}, .block = 1};
  FakeTrace::Block traced(trace.buffer(), FakeSource(&inside));
  FakeTrace::Block beyond(trace.buffer(), FakeSource(&outside));
  traced.begin(false);
  record(traced, 0, false);  // another thread of the role
  record(traced, 1, true);   // a role that the buffer has no room for
  traced.end(false);
  beyond.begin(true);
  record(beyond, 0, true);
  beyond.end(true);
  FakeTrace::Block nowhere(TraceBuffer<true>{}, FakeSource(&inside));
  nowhere.begin(true);
  record(nowhere, 0, true);
  nowhere.end(true);
  for (const std::byte byte : trace.bytes()) ASSERT_EQ(byte, std::byte{0});
}

TEST(Trace, ASpanThatIsTooLongIsAsLongAsCanBe) {
  FakeTrace trace({1, 1, 2});
  trace.run({.sm = {}, .timer = {}}, [](FakeTrace::Block& block, FakeSource::Thread&) {
    auto role = block.role(0, true);
    role.record(0, 5, 5 + (std::uint64_t{1} << 32));
    role.record(1, 5, 4 + (std::uint64_t{1} << 32));
  });
  const auto* records = reinterpret_cast<const KernelTraceRecord*>(trace.buffer().slice(0, 0) + 1);
  EXPECT_EQ(records[0].length, std::numeric_limits<std::uint32_t>::max());
  EXPECT_EQ(records[1].length, std::numeric_limits<std::uint32_t>::max());
}

// A pair is where the timer went over, and not where it was looked at.
TEST(Trace, PairsLieAtTheTimersTicks) {
  FakeTrace trace({1, 1, 1});
  const FakeSource::Thread thread{.sm = {.ghz = 2.0}, .timer = {.tick_ns = 1000}, .ns = 12'345};
  trace.run(thread, [](FakeTrace::Block&, FakeSource::Thread& t) { t.ns += 50'000; });
  const KernelTraceBlock& head = *trace.buffer().block(0);
  for (const ClockPair* pairs : {head.at_begin, head.at_end}) {
    std::set<std::uint64_t> ticks;
    for (unsigned i = 0; i < kernel_trace_pairs; ++i) {
      ticks.insert(pairs[i].ns);
      const double exactly = static_cast<double>(pairs[i].ns - test::FakeTimer::epoch) * 2.0;
      const double clock = static_cast<double>(pairs[i].clock - thread.sm.offset);
      EXPECT_NEAR(clock, exactly, 2 * 1.5 * 25 * 2.0) << "within two looks";
    }
    EXPECT_EQ(ticks.size(), kernel_trace_pairs) << "every tick once";
  }
}

TEST(Trace, BlocksThatAreShortAreNotHeldUp) {
  FakeTrace trace({.blocks = 1, .roles = 1, .capacity = 1, .waits_for_ticks = false});
  double begun = 0;
  trace.run({.sm = {}, .timer = {.tick_ns = 1000}, .ns = 12'345},
            [&](FakeTrace::Block&, FakeSource::Thread& t) { begun = t.ns; });
  EXPECT_LT(begun, 12'345 + 500);
  const KernelTraceBlock& head = *trace.buffer().block(0);
  for (const ClockPair* pairs : {head.at_begin, head.at_end}) {
    EXPECT_EQ(pairs[0].ns, test::FakeTimer::epoch + 12'000);
    EXPECT_EQ(pairs[1].ns, test::FakeTimer::epoch + 12'000);
    EXPECT_EQ(pairs[2].ns, 0U);
  }
}

TEST(Trace, ATimerThatStandsStillIsGivenUp) {
  FakeTrace trace({1, 1, 1});
  double before = 0, after = 0;
  trace.run({.sm = {}, .timer = {.tick_ns = 0}, .ns = 100},
            [&](FakeTrace::Block&, FakeSource::Thread& t) { before = t.ns; });
  trace.run({.sm = {}, .timer = {.tick_ns = 0}, .ns = 100},
            [&](FakeTrace::Block&, FakeSource::Thread& t) { after = t.ns; });
  EXPECT_EQ(before, after);
  EXPECT_LT(before, 10'000) << "it looked once for as long as it may, not four times";
  EXPECT_EQ(trace.buffer().block(0)->at_begin[0].ns, 0U);
  EXPECT_EQ(trace.buffer().block(0)->state, KernelTraceState::ended);
}

}  // namespace
}  // namespace ps::kit
