// Which kernel a call runs: the one it names, else the one measured here, else the one built in.
#include "ops/tunable.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <utility>

#include "ops/resample/tunable.h"
#include "ops/transform/tunable.h"
#include "support/environment.h"
#include "support/fake_machine.h"
#include "support/temporary_directory.h"

namespace ps::detail {
namespace {

namespace fs = std::filesystem;
using test::FakeMachine;
using test::FakeOptions;

constexpr auto date = "2026-11-15T08:30:00Z";

FakeOptions with_capability(int major, int minor) {
  FakeOptions options;
  options.adjust = [=](int, cuda::Properties& gpu) { gpu.major = major, gpu.minor = minor; };
  return options;
}

// Calls whose built-in choice on Hopper is known from the table of tuning.h.
const TransformWork two_inputs{
    .function = Function::axpby, .in_type = DType::bf16, .out_type = DType::bf16, .inputs = 2};
const TransformWork one_of_16_bits{
    .function = Function::scale, .in_type = DType::f16, .out_type = DType::f16};

class Chosen : public testing::Test {
 protected:
  Chosen() { reload_choices(); }
  ~Chosen() override { reload_choices(); }

  static TransformKernel kernel(const TransformWork& work, const Device& device,
                                TransformKernel asked = TransformKernel::best) {
    return transform_kernel(work, asked, device);
  }

  void keep(const std::string& problem, const std::string& name, MachineKey key) const {
    Choices choices{.key = std::move(key), .operators = {}};
    choices.operators["transform"][problem] = {name, date};
    save_choices(file_, choices);
    reload_choices();
  }

  test::TemporaryDirectory folder_;
  test::Variable cache_{"PENSTOCK_CACHE", folder_.path()};
  fs::path file_ = choices_path();
};

TEST_F(Chosen, BuiltInWithoutAFile) {
  const FakeMachine machine;
  EXPECT_EQ(kernel(two_inputs, machine.gpu()), TransformKernel::sm90);
  EXPECT_EQ(kernel(one_of_16_bits, machine.gpu()), TransformKernel::portable);
}

ResampleWork rows_of(DType type, std::int64_t episodes, std::int64_t samples, std::int64_t targets,
                     std::int64_t columns) {
  ResampleWork work{
      .type = type, .episodes = episodes, .targets = targets, .sensors = 1, .segments = 1};
  work.sensor[0].samples = samples;
  work.segment[0].count = columns;
  return work;
}

class ChosenOfResample : public Chosen {
 protected:
  ResampleKernel kernel_of(const ResampleWork& work) const {
    return resample_kernel(work, machine_.gpu());
  }

 private:
  FakeMachine machine_;
};

TEST_F(ChosenOfResample, BuiltInGoesByRows) {
  EXPECT_EQ(kernel_of(rows_of(DType::bf16, 1024, 500, 256, 256)), ResampleKernel::deep);
  EXPECT_EQ(kernel_of(rows_of(DType::bf16, 1024, 500, 256, 16)), ResampleKernel::wide);
  EXPECT_EQ(kernel_of(rows_of(DType::bf16, 64, 4096, 1024, 128)), ResampleKernel::deep);
  EXPECT_EQ(kernel_of(rows_of(DType::bf16, 32, 500, 200, 256)), ResampleKernel::deep);
  EXPECT_EQ(kernel_of(rows_of(DType::f32, 32, 500, 200, 64)), ResampleKernel::deep);
  ResampleWork named = rows_of(DType::f32, 32, 500, 200, 64);
  named.kernel = ResampleKernel::wide;
  EXPECT_EQ(kernel_of(named), ResampleKernel::wide);
}

TEST_F(ChosenOfResample, FewAndShortEpisodesAreFetchedWhole) {
  EXPECT_EQ(kernel_of(rows_of(DType::bf16, 32, 50, 32, 16)), ResampleKernel::brief);
  EXPECT_EQ(kernel_of(rows_of(DType::f32, 1, 8, 3, 256)), ResampleKernel::brief);
  EXPECT_EQ(kernel_of(rows_of(DType::f32, 1, 9, 3, 256)), ResampleKernel::deep);   // of 9 KiB
  EXPECT_EQ(kernel_of(rows_of(DType::bf16, 1, 253, 3, 8)), ResampleKernel::wide);  // too long
  EXPECT_EQ(kernel_of(rows_of(DType::bf16, 1, 50, 3, 9)), ResampleKernel::wide);   // of 18 bytes
  EXPECT_EQ(kernel_of(rows_of(DType::bf16, 1, 50, 3, 0)), ResampleKernel::wide);
  EXPECT_EQ(kernel_of(rows_of(DType::bf16, 4000, 50, 32, 16)), ResampleKernel::wide);  // too many
  ResampleWork ragged = rows_of(DType::bf16, 32, 50, 32, 16);
  ragged.sensor[0].offsets = &ragged;
  EXPECT_EQ(kernel_of(ragged), ResampleKernel::wide);
}

TEST_F(Chosen, ProblemsHaveNamesOfTheirOwn) {
  for (const Tunable* op : all_tunables()) {
    const std::set<std::string> names(op->problems.begin(), op->problems.end());
    EXPECT_EQ(names.size(), op->problems.size()) << op->name;
  }
}

TEST_F(Chosen, MeasuredBeforeBuiltInAndNamedBeforeMeasured) {
  const FakeMachine machine;
  keep("axpby bf16", "portable", machine_key(machine.gpu()));
  keep("scale f16", "sm90", machine_key(machine.gpu()));
  EXPECT_EQ(kernel(two_inputs, machine.gpu()), TransformKernel::portable);
  EXPECT_EQ(kernel(one_of_16_bits, machine.gpu()), TransformKernel::sm90);
  for (const TransformKernel named : {TransformKernel::portable, TransformKernel::sm90}) {
    EXPECT_EQ(kernel(two_inputs, machine.gpu(), named), named);
  }
  TransformWork other = two_inputs;  // not measured
  other.in_type = other.out_type = DType::f32;
  EXPECT_EQ(kernel(other, machine.gpu()), TransformKernel::sm90);
}

TEST_F(Chosen, AnotherMachinesChoicesDoNotCount) {
  const FakeMachine machine;
  const MachineKey key = machine_key(machine.gpu());
  for (auto field :
       {&MachineKey::device, &MachineKey::driver, &MachineKey::cpu, &MachineKey::version}) {
    MachineKey other = key;
    (other.*field) += " other";
    keep("axpby bf16", "portable", other);
    EXPECT_EQ(kernel(two_inputs, machine.gpu()), TransformKernel::sm90);
  }
  keep("axpby bf16", "portable", key);
  EXPECT_EQ(kernel(two_inputs, machine.gpu()), TransformKernel::portable);
}

TEST_F(Chosen, ADamagedFileIsAsGoodAsNone) {
  const FakeMachine machine;
  keep("axpby bf16", "portable", machine_key(machine.gpu()));
  const std::string good = test::read_text(file_);
  for (std::size_t length = 0; length + 2 < good.size(); length += 7) {
    folder_.write("choices.json", good.substr(0, length));
    reload_choices();
    EXPECT_EQ(kernel(two_inputs, machine.gpu()), TransformKernel::sm90) << length;
  }
  fs::remove(file_);
  fs::create_directories(file_ / "inside");
  reload_choices();
  EXPECT_EQ(kernel(two_inputs, machine.gpu()), TransformKernel::sm90);
}

TEST_F(Chosen, AKernelThatIsNoCandidateDoesNotCount) {
  const FakeMachine machine;
  for (const char* name : {"fastest", "best", ""}) {
    keep("axpby bf16", name, machine_key(machine.gpu()));
    EXPECT_EQ(kernel(two_inputs, machine.gpu()), TransformKernel::sm90) << name;
  }
  const FakeMachine older(with_capability(8, 0));
  keep("axpby bf16", "sm90", machine_key(older.gpu()));
  EXPECT_EQ(kernel(two_inputs, older.gpu()), TransformKernel::portable);
}

TEST_F(Chosen, EveryDeviceHasItsOwn) {
  const FakeMachine machine({.devices = 3});
  keep("axpby bf16", "portable", machine_key(machine.gpu(1)));
  EXPECT_EQ(kernel(two_inputs, machine.gpu(0)), TransformKernel::sm90);
  EXPECT_EQ(kernel(two_inputs, machine.gpu(1)), TransformKernel::portable);
  EXPECT_EQ(kernel(two_inputs, machine.gpu(2)), TransformKernel::sm90);
}

TEST_F(Chosen, TheFileIsReadOnceUntilReloaded) {
  const FakeMachine machine;
  EXPECT_EQ(kernel(two_inputs, machine.gpu()), TransformKernel::sm90);
  Choices choices{.key = machine_key(machine.gpu()), .operators = {}};
  choices.operators["transform"]["axpby bf16"] = {"portable", date};
  save_choices(file_, choices);
  EXPECT_EQ(kernel(two_inputs, machine.gpu()), TransformKernel::sm90);
  reload_choices();
  EXPECT_EQ(kernel(two_inputs, machine.gpu()), TransformKernel::portable);
}

// Calls from many threads while the file is read anew: each finds a choice, and after the last
// reload all find the same. For ThreadSanitizer.
TEST_F(Chosen, ManyThreadsLookAndReload) {
  const FakeMachine machine({.devices = 2});
  keep("axpby bf16", "portable", machine_key(machine.gpu(0)));
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, gpu = machine.gpu(thread % 2), thread] {
      const TransformKernel wanted =
          thread % 2 == 0 ? TransformKernel::portable : TransformKernel::sm90;
      while (!stop) wrong += kernel(two_inputs, gpu) == wanted ? 0 : 1;
    });
  }
  for (int i = 0; i < 200; ++i) reload_choices();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(TransformTunable, EveryCallHasAProblemOfItsOwn) {
  const Tunable& op = transform_tunable();
  std::set<std::size_t> seen;
  const auto expect = [&](const TransformWork& work, const std::string& name) {
    const std::size_t problem = transform_problem(work);
    ASSERT_LT(problem, op.problems.size()) << name;
    EXPECT_EQ(op.problems[problem], name);
    EXPECT_TRUE(seen.insert(problem).second) << name;
  };
  constexpr DType types[] = {DType::f32, DType::f16, DType::bf16};
  const auto named = [](DType type) { return std::string(name(type)); };
  for (const DType from : types) {
    for (const DType to : types) {
      if (from == to) continue;
      expect({.function = Function::cast, .in_type = from, .out_type = to},
             "cast " + named(from) + " to " + named(to));
    }
    const auto of = [&](Function function, unsigned inputs, const char* name) {
      expect({.function = function, .in_type = from, .out_type = from, .inputs = inputs},
             name + (" " + named(from)));
    };
    of(Function::scale, 1, "scale");
    of(Function::axpby, 2, "axpby");
    of(Function::add, 2, "add2");
    of(Function::add, 3, "add3");
    of(Function::add, 4, "add4");
    of(Function::mul, 2, "mul");
    of(Function::swiglu, 2, "swiglu");
    of(Function::gelu_exact, 1, "gelu exact");
    of(Function::gelu_tanh, 1, "gelu tanh");
  }
  EXPECT_EQ(seen.size(), op.problems.size());
}

TEST(Tunable, CandidatesAreWhatTheDeviceRuns) {
  const auto count = [](const Tunable& op, const Device& device) {
    std::set<std::size_t> counts;
    for (std::size_t problem = 0; problem < op.problems.size(); ++problem) {
      counts.insert(op.candidates(problem, device).size());
    }
    return counts;
  };
  using Counts = std::set<std::size_t>;
  for (const Tunable* op : all_tunables()) EXPECT_EQ(count(*op, Device::cpu()), Counts{0});
  const FakeMachine hopper;
  EXPECT_EQ(count(transform_tunable(), hopper.gpu()), Counts{2});
  EXPECT_EQ(count(iterate_tunable(), hopper.gpu()), Counts{1});
  const FakeMachine ampere(with_capability(8, 6));
  EXPECT_EQ(count(transform_tunable(), ampere.gpu()), Counts{1});
  const FakeMachine turing(with_capability(7, 5));
  EXPECT_EQ(count(transform_tunable(), turing.gpu()), Counts{0});
}

}  // namespace
}  // namespace ps::detail
