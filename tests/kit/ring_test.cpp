// The ring as it is shipped, in every interleaving of small cases; and that each way of getting it
// wrong is noticed.
#include "penstock/kit/ring.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "kit/ring_model.h"

namespace {

using ps::kit::Consumer;
using ps::kit::Producer;
using ps::kit::Ring;
using ps::test::explore;
using ps::test::Explored;
using ps::test::Fault;
using ps::test::ModelBarrier;
using ps::test::RingCase;

std::string describe(const RingCase& c) {
  return "depth " + std::to_string(c.depth) + ", " + std::to_string(c.producers) +
         " producers ahead by " + std::to_string(c.ahead) + ", " + std::to_string(c.consumers) +
         " consumers holding " + std::to_string(c.held) + ", runs of " + std::to_string(c.run);
}

const std::map<std::string, std::string> none;

// Every depth and every number of producers and consumers, where `change` has it so.
template <class Change>
void expect_right(const Change& change) {
  std::size_t states = 0;
  for (unsigned depth = 1; depth <= 4; ++depth) {
    for (unsigned producers = 1; producers <= 2; ++producers) {
      for (unsigned consumers = 1; consumers <= 3; ++consumers) {
        RingCase c{.depth = depth, .producers = producers, .consumers = consumers};
        if (!change(c)) continue;
        const Explored explored = explore(c);
        EXPECT_EQ(explored.failures, none) << describe(c);
        EXPECT_EQ(explored.ends, 1U) << describe(c);
        states += explored.states;
      }
    }
  }
  testing::Test::RecordProperty("states", std::to_string(states));
}

TEST(RingModel, ThreadsCommit) {
  expect_right([](RingCase&) { return true; });
}

TEST(RingModel, CopiesCommit) {
  expect_right([](RingCase& c) {
    c.pieces = 1;
    return true;
  });
}

TEST(RingModel, CopiesCommitInPieces) {
  expect_right([](RingCase& c) {
    c.pieces = 2;
    return c.depth * c.producers <= 4;  // beyond, millions of states
  });
}

TEST(RingModel, ConsumersHoldTwoSlots) {
  expect_right([](RingCase& c) {
    c.held = 2;
    return c.depth >= 2;
  });
}

TEST(RingModel, ConsumersHoldAllThatCopiesFill) {
  expect_right([](RingCase& c) {
    c.pieces = 1;
    c.held = c.depth;
    return c.depth >= 2;
  });
}

TEST(RingModel, ProducersAcquireTwoAhead) {
  expect_right([](RingCase& c) {
    c.ahead = 2;
    return c.depth >= 2;
  });
}

TEST(RingModel, BothHoldTwoSlots) {
  expect_right([](RingCase& c) {
    c.ahead = 2;
    c.held = 2;
    return c.depth >= 3;
  });
}

TEST(RingModel, ThreadsOfAGroupReleaseByTurns) {
  expect_right([](RingCase& c) {
    c.pairs = true;
    c.held = c.depth >= 2 ? 2 : 1;
    return true;
  });
}

TEST(RingModel, DrainWaitsForEveryRelease) {
  expect_right([](RingCase& c) {
    c.drain = true;
    return true;
  });
}

TEST(RingModel, HoldingTakesTheDepthThatTheHeaderSays) {
  for (unsigned depth = 1; depth <= 4; ++depth) {
    for (unsigned ahead = 1; ahead <= depth + 1; ++ahead) {
      for (unsigned held = 1; held <= depth + 1; ++held) {
        const RingCase c{
            .depth = depth, .producers = 2, .consumers = 2, .ahead = ahead, .held = held};
        const Explored explored = explore(c);
        if (depth + 1 >= ahead + held) {
          EXPECT_EQ(explored.failures, none) << describe(c);
        } else {
          EXPECT_TRUE(explored.failures.contains("deadlock")) << describe(c);
        }
      }
    }
  }
}

// As in a ping-pong schedule: one consumer takes a tile's slots while the other one does something
// else. Runs may be longer than the ring.
TEST(RingModel, ConsumersTakeRunsByTurns) {
  for (unsigned run = 1; run <= 6; ++run) {
    for (const unsigned held : {1U, 2U}) {
      for (const unsigned pieces : {0U, 1U}) {
        expect_right([&](RingCase& c) {
          c.run = run;
          c.held = held;
          c.pieces = pieces;
          c.drain = true;
          return c.consumers >= 2 && c.depth >= held;
        });
      }
    }
  }
}

TEST(RingModel, PairsTakeRunsByTurns) {
  expect_right([](RingCase& c) {
    c.run = 3;
    c.pairs = true;
    return c.consumers == 2;
  });
}

TEST(RingModel, RunsTakeTheDepthThatTheHeaderSays) {
  for (unsigned depth = 1; depth <= 4; ++depth) {
    for (unsigned held = 1; held <= depth + 1; ++held) {
      const RingCase c{.depth = depth,
                       .producers = 1,
                       .consumers = 2,
                       .ahead = 2,
                       .held = held,
                       .run = depth + 2};
      const Explored explored = explore(c);
      if (depth + 1 >= c.ahead + held) {
        EXPECT_EQ(explored.failures, none) << describe(c);
      } else {
        EXPECT_TRUE(explored.failures.contains("deadlock")) << describe(c);
      }
    }
  }
}

// The same mistake at every depth.
void expect_caught(RingCase c, const std::string& failure) {
  for (c.depth = 1; c.depth <= 4; ++c.depth) {
    const auto failures = explore(c).failures;
    EXPECT_TRUE(failures.contains(failure)) << describe(c) << testing::PrintToString(failures);
  }
}

TEST(BrokenRing, ProducerDoesNotWait) {
  expect_caught({.empty = Fault::open}, "overwritten before release");
  expect_caught({.pieces = 2, .empty = Fault::open}, "overwritten before release");
}

TEST(BrokenRing, ConsumerDoesNotWait) {
  expect_caught({.full = Fault::open}, "read before commit");
}

TEST(BrokenRing, ProducerBeginsInTheWrongPhase) {
  expect_caught({.empty = Fault::inverted}, "deadlock");
}

TEST(BrokenRing, ConsumerBeginsInTheWrongPhase) {
  expect_caught({.full = Fault::inverted}, "read before commit");
}

TEST(BrokenRing, ProducerDoesNotFlipAtTheWrap) {
  expect_caught({.empty = Fault::stuck}, "overwritten before release");
}

TEST(BrokenRing, ConsumerDoesNotFlipAtTheWrap) {
  expect_caught({.full = Fault::stuck}, "read before commit");
}

TEST(BrokenRing, ConsumerReleasesBeforeItReads) {
  expect_caught({.release_first = true}, "read what is not there");
  expect_caught({.pieces = 1, .release_first = true}, "read what is not there");
}

TEST(BrokenRing, ProducerCommitsBeforeItWrites) {
  expect_caught({.commit_first = true}, "read what is not there");
}

TEST(BrokenRing, OneCommitTooFewCounted) {
  expect_caught({.producers = 2, .more_commits = -1}, "read before commit");
}

TEST(BrokenRing, OneReleaseTooFewCounted) {
  expect_caught({.consumers = 2, .more_releases = -1}, "overwritten before release");
  expect_caught({.consumers = 3, .more_releases = -1}, "overwritten before release");
}

TEST(BrokenRing, OneCommitTooManyCounted) {
  expect_caught({.more_commits = 1}, "deadlock");
  expect_caught({.producers = 2, .pieces = 1, .more_commits = 1}, "deadlock");
}

TEST(BrokenRing, OneReleaseTooManyCounted) {
  expect_caught({.more_releases = 1}, "deadlock");
  expect_caught({.consumers = 3, .more_releases = 1}, "deadlock");
}

TEST(BrokenRing, ReleasesOfConsumersThatSkipCounted) {
  expect_caught({.consumers = 2, .run = 2, .more_releases = 1}, "deadlock");
  expect_caught({.consumers = 3, .run = 5, .more_releases = 2}, "deadlock");
}

TEST(BrokenRing, ConsumerWaitsBeforeItsTurn) {
  expect_caught({.consumers = 2, .run = 4, .unordered = true}, "read before commit");
  expect_caught({.consumers = 3, .pieces = 1, .run = 5, .unordered = true}, "read before commit");
}

TEST(BrokenRing, ConsumerSkipsBeforeItsLastRelease) {
  // At depth 1 every release is of the only slot.
  for (unsigned depth = 2; depth <= 4; ++depth) {
    const RingCase c{.depth = depth, .consumers = 2, .run = 4, .skip_first = true};
    EXPECT_TRUE(explore(c).failures.contains("released another slot")) << describe(c);
  }
}

TEST(BrokenRing, TooFewBytesAnnounced) {
  expect_caught({.pieces = 2, .more_bytes = -1}, "read what is not there");
}

TEST(BrokenRing, TooManyBytesAnnounced) {
  expect_caught({.pieces = 2, .more_bytes = 1}, "deadlock");
}

template <unsigned depth>
void expect_to_skip() {
  for (unsigned begin = 0; begin < 2 * depth; ++begin) {
    for (unsigned count = 0; count <= 5 * depth; ++count) {
      ps::kit::Cursor<depth> jumped{begin % depth, begin / depth}, walked = jumped;
      jumped.advance_by(count);
      for (unsigned i = 0; i < count; ++i) walked.advance();
      EXPECT_EQ(jumped.slot, walked.slot) << "depth " << depth << ", " << begin << " + " << count;
      EXPECT_EQ(jumped.parity, walked.parity)
          << "depth " << depth << ", " << begin << " + " << count;
    }
  }
}

TEST(Ring, SkippingIsAdvancingOverEachSlot) {
  expect_to_skip<1>();
  expect_to_skip<2>();
  expect_to_skip<3>();
  expect_to_skip<4>();
  expect_to_skip<7>();
}

static_assert(std::is_trivially_copyable_v<Producer<ModelBarrier, 3>>);
static_assert(std::is_trivially_copyable_v<Consumer<ModelBarrier, 3>>);

TEST(Ring, CopiesAndThreadsMayCommitByTurns) {
  Ring<ModelBarrier, 3> ring;
  ring.init(1, 1);
  Producer producer(ring);
  Consumer consumer(ring);
  for (unsigned item = 0; item < 14; ++item) {
    const bool copied = item % 5 != 4;
    const unsigned slot = copied ? producer.acquire(16) : producer.acquire();
    ASSERT_EQ(slot, item % 3);
    EXPECT_FALSE(consumer.try_wait());
    if (copied) {
      producer.full(slot).complete(16);
    } else {
      producer.commit();
    }
    ASSERT_TRUE(consumer.try_wait()) << item;
    EXPECT_EQ(consumer.wait(), slot);
    consumer.release();
  }
}

// Writes down what the ring asks of its barriers.
struct LoggingBarrier {
  std::vector<std::string>* log = nullptr;

  void init(unsigned count) { note("init", count); }
  void arrive() { note("arrive", 0); }
  void arrive_expect(unsigned bytes) { note("expect", bytes); }
  bool try_wait(unsigned parity) {
    note("look", parity);
    return true;
  }
  void wait(unsigned parity) { note("wait", parity); }
  void note(const char* what, unsigned value) {
    if (log != nullptr) log->push_back(what + (" " + std::to_string(value)));
  }
};

TEST(Ring, EachCallIsOneCallOfABarrier) {
  Ring<LoggingBarrier, 2> ring;
  std::vector<std::string> full, empty;
  for (unsigned slot = 0; slot < 2; ++slot) {
    ring.full[slot].log = &full;
    ring.empty[slot].log = &empty;
  }
  using Log = std::vector<std::string>;
  ring.init(3, 5);
  EXPECT_EQ(full, (Log{"init 3", "init 3"}));
  EXPECT_EQ(empty, (Log{"init 5", "init 5"}));
  full.clear();
  empty.clear();

  Producer producer(ring);
  for (unsigned item = 0; item < 3; ++item) producer.acquire();
  producer.try_acquire();
  producer.commit();
  EXPECT_EQ(empty, (Log{"wait 1", "wait 1", "wait 0", "look 0"}));
  EXPECT_EQ(full, (Log{"arrive 0"}));
  empty.clear();
  full.clear();

  Consumer consumer(ring);
  for (unsigned item = 0; item < 3; ++item) consumer.wait();
  EXPECT_EQ(consumer.wait(consumer.try_wait()), 1U);  // no second look
  EXPECT_EQ(consumer.wait(false), 0U);
  EXPECT_EQ(full, (Log{"wait 0", "wait 0", "wait 1", "look 1", "wait 0"}));
  consumer.release();
  consumer.skip_release();
  EXPECT_EQ(empty, (Log{"arrive 0"}));
  EXPECT_EQ(consumer.oldest(), 0U);
}

}  // namespace
