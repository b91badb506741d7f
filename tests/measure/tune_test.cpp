#include "penstock/measure/tune.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>

#include "measure/tune_parts.h"
#include "ops/rotation.h"
#include "penstock/base/error.h"
#include "support/environment.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/temporary_directory.h"
#include "support/watchdog.h"

namespace ps {
namespace {

using Samples = std::vector<std::vector<double>>;

// Turns of kernels that take these times, with errors of their own and one that all share.
Samples samples(const std::vector<double>& means, double deviation, int turns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> error(0, deviation), drift(0, 0.05);
  Samples seconds(means.size());
  for (int turn = 0; turn < turns; ++turn) {
    const double shared = 1 + drift(random);
    for (std::size_t i = 0; i < means.size(); ++i) {
      seconds[i].push_back(means[i] * shared * (1 + error(random)));
    }
  }
  return seconds;
}

TEST(CompareTurns, AClearGainWins) {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    const Verdict verdict = compare_turns(samples({1.03, 1.0}, 0.005, 61, seed));
    EXPECT_EQ(verdict.winner, 1u);
    EXPECT_NEAR(verdict.gain, 0.03, 0.01);
    EXPECT_LT(verdict.noise, 0.01);
  }
}

TEST(CompareTurns, EqualKernelsLeaveTheBuiltInOne) {
  int replaced = 0;
  for (unsigned seed = 1; seed <= 1000; ++seed) {
    replaced += compare_turns(samples({1, 1}, 0.01, 61, seed)).winner == 0 ? 0 : 1;
  }
  EXPECT_LT(replaced, 10);  // three standard errors: one or two
}

TEST(CompareTurns, AGainWithinTheNoiseDoesNotWin) {
  const Verdict verdict = compare_turns(samples({1.001, 1.0}, 0.05, 11, 1));
  EXPECT_EQ(verdict.winner, 0u);
  EXPECT_GT(verdict.noise, verdict.gain);
}

TEST(CompareTurns, ASlowerOneNeverWins) {
  const Verdict verdict = compare_turns(samples({1.0, 1.02}, 0.001, 61, 1));
  EXPECT_EQ(verdict.winner, 0u);
  EXPECT_LT(verdict.gain, 0);
}

TEST(CompareTurns, TheFastestOfSeveralWins) {
  EXPECT_EQ(compare_turns(samples({1.05, 1.03, 1.0, 1.2}, 0.003, 61, 1)).winner, 2u);
}

TEST(CompareTurns, SomeTurnsGoneWrongChangeNothing) {
  Samples seconds = samples({1.03, 1.0}, 0.003, 61, 1);
  for (std::size_t turn = 0; turn < 61; turn += 7) seconds[1][turn] *= 10;
  EXPECT_EQ(compare_turns(seconds).winner, 1u);
}

TEST(CompareTurns, WithoutAChallengerThereIsNothingToSay) {
  const Verdict verdict = compare_turns({{1, 1, 1}});
  EXPECT_EQ(verdict.winner, 0u);
  EXPECT_EQ(verdict.gain, 0);
}

// An operator of three kernels on a fake GPU. The first takes twice the time of the others, the
// last writes other bits.
class Tune : public testing::Test {
 protected:
  enum Kernel : unsigned { slow, quick, wrong };

  detail::Tunable operator_of(std::vector<unsigned> candidates) {
    return {
        .name = "made up",
        .kernels = {"slow", "quick", "wrong"},
        .problems = {"one", "two"},
        .candidates = [candidates](std::size_t, const Device&) { return candidates; },
        .trial =
            [this](std::size_t, const Device& device, std::size_t bytes) {
              const auto memory = std::make_shared<detail::Rotation>(device, bytes);
              return detail::Trial{
                  .bytes = bytes,
                  .enqueue =
                      [this, memory](unsigned kernel, std::size_t number, const Stream& stream) {
                        enqueue(kernel, (*memory)(number), stream);
                      },
                  .output = [memory](std::size_t number) { return (*memory)(number); }};
            }};
  }

  void enqueue(unsigned kernel, MemoryView out, const Stream& stream) {
    test::launch(machine_.driver(), stream, {}, {{out.data, out.bytes}}, [=, this] {
      machine_.driver().pass(std::chrono::seconds(kernel == slow ? 2 : 1));
      std::memset(out.data, kernel == wrong ? 2 : 1, out.bytes);
    });
  }

  Tuning tuned(const detail::Tunable& op, TuneOptions options = {}) {
    options.bytes = 64 * KiB;
    options.turns = 9;
    const detail::Tunable* operators[] = {&op};
    return detail::tune(machine_.gpu(), options, operators);
  }

  TuneState state(const detail::Tunable& op) {
    const detail::Tunable* operators[] = {&op};
    return detail::tune_state(machine_.gpu(), {}, operators);
  }

  test::Watchdog watchdog_{"tune on a fake GPU"};
  test::TemporaryDirectory folder_;
  test::Variable cache_{"PENSTOCK_CACHE", folder_.path()};
  test::FakeMachine machine_{
      {.adjust = [](int, cuda::Properties& gpu) { gpu.l2_bytes = MiB; }, .max_delay_us = 0}};
};

TEST_F(Tune, AFasterKernelReplacesTheBuiltInOne) {
  const detail::Tunable op = operator_of({slow, quick});
  const Tuning tuning = tuned(op);
  EXPECT_EQ(tuning.key, machine_key(machine_.gpu()));
  ASSERT_EQ(tuning.problems.size(), 2u);
  for (const TunedProblem& each : tuning.problems) {
    EXPECT_EQ(each.op, "made up");
    EXPECT_EQ(each.chosen, "quick");
    EXPECT_GT(each.gain, each.noise);
    ASSERT_EQ(each.times.size(), 2u);
    EXPECT_EQ(each.times[0].kernel, "slow");
    EXPECT_GT(each.times[1].copy_share, each.times[0].copy_share);
    EXPECT_TRUE(each.unfit.empty());
  }
  EXPECT_TRUE(folder_.empty()) << "tune() keeps nothing itself";
  EXPECT_TRUE(test::is_clean(machine_.driver()));
}

TEST_F(Tune, TheBuiltInOneStaysWhereItIsFaster) {
  const detail::Tunable op = operator_of({quick, slow});
  for (const TunedProblem& each : tuned(op).problems) {
    EXPECT_EQ(each.chosen, "quick");
    EXPECT_LT(each.gain, 0);
  }
}

TEST_F(Tune, AKernelWithOtherBitsIsNeverChosen) {
  const detail::Tunable op = operator_of({slow, wrong});
  for (const TunedProblem& each : tuned(op).problems) {
    EXPECT_EQ(each.chosen, "slow");
    EXPECT_EQ(each.unfit, std::vector<std::string>{"wrong"});
    EXPECT_EQ(each.times.size(), 1u);
  }
}

TEST_F(Tune, OneKernelIsNothingToChoose) {
  detail::Tunable op = operator_of({quick});
  op.trial = nullptr;
  EXPECT_TRUE(tuned(op).problems.empty());
  EXPECT_TRUE(tune(Device::cpu(), {}).problems.empty());
}

TEST_F(Tune, WhatWasChosenIsUsedAndSaidSo) {
  const detail::Tunable op = operator_of({slow, quick});
  ASSERT_EQ(state(op).problems.size(), 2u);
  EXPECT_EQ(state(op).problems[0].used, "slow");
  EXPECT_EQ(state(op).problems[0].measured, "");
  const Tuning tuning = tuned(op);
  save_choices(choices_path(), choices_of(tuning));
  EXPECT_EQ(state(op).problems[1].used, "quick");
  EXPECT_EQ(state(op).problems[1].measured, tuning.date);
  EXPECT_TRUE(state(op).warnings.empty());
}

TEST_F(Tune, SaysWhatIsWrongWithTheFile) {
  const detail::Tunable op = operator_of({slow, quick});
  Choices choices{.key = machine_key(machine_.gpu()), .operators = {}};
  choices.operators["made up"]["two"] = {"gone", "2026-11-15T08:30:00Z"};
  save_choices(choices_path(), choices);
  ASSERT_EQ(state(op).warnings.size(), 1u);
  EXPECT_NE(state(op).warnings[0].find("gone for made up two"), std::string::npos);
  EXPECT_EQ(state(op).problems[1].used, "slow");
  folder_.write("choices.json", "{\"schema\": 2}");
  ASSERT_EQ(state(op).warnings.size(), 1u);
  EXPECT_NE(state(op).warnings[0].find("choices.schema"), std::string::npos);
}

TEST_F(Tune, StopsBetweenTurns) {
  const detail::Tunable op = operator_of({slow, quick});
  std::stop_source source;
  TuneOptions options{.stop = source.get_token()};
  options.progress = [&](std::string_view problem, double share) {
    EXPECT_EQ(problem, "one");
    EXPECT_EQ(share, 0);
    source.request_stop();
  };
  EXPECT_THROW(tuned(op, options), Cancelled);
  EXPECT_TRUE(test::is_clean(machine_.driver()));
}

TEST_F(Tune, LeavesNothingBehindWhicheverCallFails) {
  const detail::Tunable op = operator_of({quick, slow});
  for (const char* call : {"stream_create", "host_alloc", "device_alloc", "event_create",
                           "event_record", "event_elapsed_ms", "copy", "fill"}) {
    for (const std::uint64_t n : {1, 2, 5}) {
      machine_.driver().fail_call(n, test::invalid_value, {call});
      try {
        tuned(op);
      } catch (const DeviceError&) {
      }
      machine_.driver().disarm();
      EXPECT_TRUE(test::is_clean(machine_.driver())) << call << " failed, time " << n;
    }
  }
}

TEST_F(Tune, NamesTheOptionThatIsOutOfRange) {
  const auto argument = [](const TuneOptions& options) {
    try {
      tune(Device::cpu(), options);
    } catch (const InvalidArgument& error) {
      return std::string(error.argument());
    }
    return std::string("none");
  };
  EXPECT_EQ(argument({.op = "dance"}), "op");
  EXPECT_EQ(argument({.bytes = 1}), "options.bytes");
  EXPECT_EQ(argument({.turns = 0}), "options.turns");
}

}  // namespace
}  // namespace ps
