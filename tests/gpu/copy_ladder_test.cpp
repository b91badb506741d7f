// Every kernel of the copy ladder computes what it should, at any size and alignment, writes
// nothing else, and refuses what it cannot do.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "copy/support/rung.h"
#include "copy/support/sides.h"
#include "gpu/gpu_test.h"
#include "gpu/kernel_roles.h"
#include "penstock/base/error.h"
#include "penstock/base/text_file.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"
#include "penstock/measure/page.h"
#include "support/ladder.h"
#include "support/temporary_directory.h"

namespace {

using ladder::copy::coefficients_for;
using ladder::copy::Formula;
using ladder::copy::Kernel;
using ps::test::floats;

constexpr std::size_t margin = 8;  // on both sides of what a kernel may write

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

// The rungs' kernels, and those of the benchmark that has the kernel with roles apart.
std::vector<std::pair<std::string, Kernel>> all_kernels() {
  std::vector<std::pair<std::string, Kernel>> all;
  for (const ladder::copy::RungKernels& rung : ladder::copy::all_kernels()) {
    for (const Kernel& kernel : rung.kernels()) all.emplace_back(rung.rung, kernel);
  }
  for (const ladder::copy::Sides& sides : ladder::copy::role_sides()) {
    all.emplace_back("sides", sides.both);
  }
  return all;
}

struct Size {
  std::size_t count = 0;
  std::size_t in_offset = 0, out_offset = 0, coefficients_offset = 0;  // floats off a boundary
  int rounds = 0;
};

class CopyLadderGpu : public ps::test::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    stream = ps::Stream(gpu);
  }

  // Arrays for the largest size, with random numbers.
  void make_arrays(std::size_t largest) {
    const auto bytes = [](std::size_t count) { return (count + 2 * margin) * sizeof(float); };
    std::mt19937 generator(static_cast<unsigned>(largest));
    std::uniform_real_distribution<float> uniform(-2.0F, 2.0F);
    const auto random = [&](ps::PinnedBuffer& host, ps::DeviceBuffer& device, std::size_t count) {
      host = ps::PinnedBuffer(gpu, bytes(count));
      device = ps::DeviceBuffer(gpu, bytes(count));
      std::generate_n(host.view().as<float>(), count + 2 * margin,
                      [&] { return uniform(generator); });
      ps::copy(device.view(), host.view(), *stream);
    };
    random(in_host, in, largest);
    random(coefficients_host, coefficients, coefficients_for(largest));
    out_host = ps::PinnedBuffer(gpu, bytes(largest));
    out = ps::DeviceBuffer(gpu, bytes(largest));
  }

  ladder::copy::Options options(const Kernel& kernel, const Size& size) const {
    ladder::copy::Options options{.in = floats(in.view(), size.in_offset, size.count),
                                  .out = floats(out.view(), margin + size.out_offset, size.count),
                                  .rounds = size.rounds};
    if (kernel.formula == Formula::row) {
      options.coefficients =
          floats(coefficients.view(), size.coefficients_offset, coefficients_for(size.count));
    }
    return options;
  }

  void check(const std::string& rung, const Kernel& kernel, const Size& size) const {
    SCOPED_TRACE(testing::Message()
                 << rung << ", " << kernel.label << ": " << size.count << " elements, offsets "
                 << size.in_offset << ", " << size.out_offset << " and " << size.coefficients_offset
                 << ", " << size.rounds << " rounds");
    ps::fill(out.view(), ps::test::poison, *stream);
    enqueue(kernel, options(kernel, size), *stream);
    ps::copy(out_host.view(), out.view(), *stream);
    stream->synchronize();

    const std::span<const float> x(in_host.view().as<float>() + size.in_offset, size.count);
    const std::span<const float> c(coefficients_host.view().as<float>() + size.coefficients_offset,
                                   coefficients_for(size.count));
    const auto* const got = out_host.view().as<float>();
    const std::size_t begin = margin + size.out_offset, end = begin + size.count;
    const std::size_t last = std::min(end + margin, out_host.bytes() / sizeof(float));
    for (std::size_t i = 0; i < last; ++i) {
      if (i >= begin && i < end) {
        const float wanted = expected(kernel.formula, x, c, size.rounds, i - begin);
        ASSERT_EQ(bits(got[i]), bits(wanted)) << "element " << i - begin << " is " << got[i];
      } else {
        ASSERT_EQ(bits(got[i]), 0xFFFFFFFFU) << "element " << i << " is outside and was written";
      }
    }
  }

  // All kernels that this GPU can run, on one size.
  void check_all(const Size& size) const {
    check_if(size, [](const std::string&, const Kernel&) { return true; });
  }

  // Those for which wanted(rung, kernel) is true.
  template <class Wanted>
  void check_if(const Size& size, const Wanted& wanted) const {
    for (const auto& [rung, kernel] : all_kernels()) {
      if (!wanted(rung, kernel) || !why_not(kernel, gpu).empty()) continue;
      check(rung, kernel, size);
      if (HasFatalFailure()) return;
    }
  }

  // On small sizes, for compute-sanitizer.
  template <class Wanted>
  void check_small_sizes(const Wanted& wanted) {
    make_arrays(100'003);
    for (const std::size_t count : {1U, 4097U, 100'003U}) {
      check_if({.count = count, .rounds = 2}, wanted);
    }
  }

  std::optional<ps::Stream> stream;
  ps::PinnedBuffer in_host, coefficients_host, out_host;
  ps::DeviceBuffer in, coefficients, out;
};

TEST_F(CopyLadderGpu, EveryRungHasKernels) {
  const std::vector<std::string> with_kernels{
      "synchronous", "coalesced",   "registers",  "vectorised", "cp.async",
      "pipeline",    "cooperative", "bulk",       "tensor",     "roles",
      "two-buffers", "ring",        "persistent", "multicast",  "halo"};
  std::vector<std::string> found;
  for (const auto& rung : ladder::copy::all_kernels()) {
    found.emplace_back(rung.rung);
    EXPECT_FALSE(rung.kernels().empty()) << rung.rung;
  }
  EXPECT_TRUE(std::ranges::is_permutation(found, with_kernels));
}

TEST_F(CopyLadderGpu, AnySize) {
  constexpr std::size_t row = ladder::copy::width, tile = 4096;  // floats of 16 KiB
  const std::vector<std::size_t> counts{
      1,        2,        3,    4,        5,        31,           32,      33,
      255,      256,      257,  1023,     1024,     1025,         row - 1, row,
      row + 1,  tile - 1, tile, tile + 1, 2 * tile, 3 * tile + 4, 8 * row, 8 * row + 5,
      33 * row, 100'003};
  make_arrays(*std::ranges::max_element(counts));
  for (const std::size_t count : counts) check_all({.count = count, .rounds = 9});
}

TEST_F(CopyLadderGpu, AWaveMoreOrLess) {
  // Around what all multiprocessors take at once.
  const auto processors = static_cast<std::size_t>(gpu.capabilities().multiprocessors);
  const std::size_t wave = processors * 8192;
  make_arrays(wave + 4);
  for (const std::size_t count : {wave - 4, wave, wave + 4}) check_all({.count = count});
}

TEST_F(CopyLadderGpu, AnyAlignment) {
  make_arrays(20'011);
  for (std::size_t in_offset = 0; in_offset < 4; ++in_offset) {
    for (std::size_t out_offset = 0; out_offset < 4; ++out_offset) {
      check_all({.count = 20'003,
                 .in_offset = in_offset,
                 .out_offset = out_offset,
                 .coefficients_offset = (in_offset + out_offset) % 4,
                 .rounds = 2});
    }
  }
}

TEST_F(CopyLadderGpu, AnyRounds) {
  make_arrays(12'289);
  for (const int rounds : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 257}) {
    check_all({.count = 12'289, .rounds = rounds});
  }
}

TEST_F(CopyLadderGpu, RandomSizes) {
  constexpr std::size_t largest = 300'000;
  make_arrays(largest + 4);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 generator(seed);
  for (int i = 0; i < 12; ++i) {
    const auto any = [&](std::size_t most) {
      return std::uniform_int_distribution<std::size_t>(0, most)(generator);
    };
    check_all({.count = 1 + any(largest - 1),
               .in_offset = any(3),
               .out_offset = any(3),
               .coefficients_offset = any(3),
               .rounds = static_cast<int>(any(40))});
  }
}

TEST_F(CopyLadderGpu, ManyTilesOnEveryBlock) {
  // Rings turn over several times, and phases with them.
  make_arrays(std::size_t{16} << 20);
  check_all({.count = std::size_t{16} << 20, .rounds = 1});
}

// For compute-sanitizer (scripts/gpu_check.sh): racecheck cannot follow Hopper's instructions, and
// synccheck not cuda::pipeline.
TEST_F(CopyLadderGpu, SmallSizesWithoutHopper) {
  check_small_sizes([](const std::string& rung, const Kernel& kernel) {
    return !kernel.hopper && rung != "pipeline";
  });
}

TEST_F(CopyLadderGpu, SmallSizesOfPipelines) {
  check_small_sizes([](const std::string& rung, const Kernel&) { return rung == "pipeline"; });
}

TEST_F(CopyLadderGpu, SmallSizesOnHopper) {
  check_small_sizes([](const std::string&, const Kernel& kernel) { return kernel.hopper; });
}

TEST_F(CopyLadderGpu, NothingIsNothing) {
  make_arrays(64);
  for (const auto& [rung, kernel] : all_kernels()) {
    if (why_not(kernel, gpu).empty()) check(rung, kernel, {});
  }
}

TEST_F(CopyLadderGpu, TheReferenceIsRight) {
  make_arrays(10'000);
  const std::span<const float> x(in_host.view().as<float>(), 10'000);
  const std::span<const float> c(coefficients_host.view().as<float>(), coefficients_for(10'000));
  for (const Formula formula : {Formula::plain, Formula::row, Formula::stencil}) {
    for (std::size_t i = 0; i < x.size(); i += 7) {
      const double wanted = exact(formula, x, c, 64, i);
      const double got = expected(formula, x, c, 64, i);
      ASSERT_TRUE(std::abs(got - wanted) <= 64 * 1.2e-7 * 4) << name(formula) << ", element " << i;
    }
  }
}

TEST_F(CopyLadderGpu, TracedKernelsAreRightAndShowEveryRole) {
  const Size size{.count = std::size_t{4} << 20, .rounds = 9};
  make_arrays(size.count);
  std::set<std::string> names;
  for (const ladder::copy::RungKernels& rung : ladder::copy::all_kernels()) {
    ASSERT_FALSE(rung.traced().empty()) << rung.rung;
    for (const ladder::copy::Traced& traced : rung.traced()) {
      SCOPED_TRACE(testing::Message() << rung.rung << ", trace " << traced.name);
      EXPECT_TRUE(names.insert(traced.name).second) << "a name of its own";
      if (!why_not(traced.kernel({}), gpu).empty()) continue;
      const auto launch = [&](const ps::kit::TraceBuffer<true>& buffer) {
        check(std::string(rung.rung), traced.kernel(buffer), size);
      };
      const std::vector<int> spans = ps::test::expect_every_role(
          {.name = traced.name, .roles = traced.roles, .room = traced.room, .launch = launch},
          *stream);
      if (HasFatalFailure()) return;
      EXPECT_EQ(spans.front(), spans.at(2)) << "what was loaded was stored";
    }
  }
}

TEST_F(CopyLadderGpu, IsClimbedAndShowsItsRoles) {
  const ps::test::TemporaryDirectory folder;
  ladder::Context context({.device = gpu, .quick = true, .trace = folder.path().string()});
  std::vector<ladder::Rung> rungs = ladder::rungs();
  std::erase_if(rungs, [](const ladder::Rung& rung) { return rung.ladder != "copy"; });
  EXPECT_EQ(rungs.size(), 16u);
  for (const auto& [rung, rows] : climb(context, rungs, [](const auto&, double) {})) {
    for (const ladder::Row& row : rows) {
      SCOPED_TRACE(testing::Message() << rung.name << ", " << row.label);
      EXPECT_TRUE(row.seconds > 0 || !row.note.empty());
      EXPECT_TRUE(row.seconds == 0 || row.efficiency.value_or(0) > 0);
    }
  }
  for (const ladder::copy::RungKernels& rung : ladder::copy::all_kernels()) {
    for (const ladder::copy::Traced& traced : rung.traced()) {
      if (!why_not(traced.kernel({}), gpu).empty()) continue;
      EXPECT_TRUE(std::filesystem::exists(folder.path() / ("copy_" + traced.name + ".html")));
      EXPECT_TRUE(std::filesystem::exists(folder.path() / ("copy_" + traced.name + ".json")));
    }
  }
  // Both levels in one document: a bar for every chunk and engine, and one chunk's kernel in roles.
  if (gpu.capabilities().compute_major != 9) return;
  const std::string both = ps::read_text(folder.path() / "copy_two_level.json", 64 * ps::MiB);
  const std::vector<ps::PageRun> runs = ps::timelines_in(both, "copy_two_level.json");
  ASSERT_EQ(runs.size(), 1u);
  ASSERT_EQ(runs[0].kernels.size(), 1u);
  std::set<ps::Engine> engines;
  for (const ps::TimelineEntry& entry : runs[0].entries) engines.insert(entry.engine);
  EXPECT_EQ(engines, (std::set{ps::Engine::upload, ps::Engine::download, ps::Engine::compute}));
  std::set<unsigned> roles;
  for (const ps::RoleSpan& span : runs[0].kernels[0].roles.spans) roles.insert(span.role);
  EXPECT_EQ(roles.size(), 3u);
}

// What enqueue() says to the options, by the argument that it names.
std::string refused(const Kernel& kernel, const ladder::copy::Options& options,
                    const ps::Stream& stream) {
  try {
    enqueue(kernel, options, stream);
  } catch (const ps::InvalidArgument& error) {
    return error.argument();
  }
  return "";
}

TEST_F(CopyLadderGpu, RefusesWhatItCannotDo) {
  make_arrays(10'000);
  const Kernel kernel = all_kernels().front().second;
  const ladder::copy::Options right = options(kernel, {.count = 1000});
  EXPECT_EQ(refused(kernel, right, *stream), "");

  auto wrong = right;
  wrong.out = floats(in.view(), 999, 1000);
  EXPECT_EQ(refused(kernel, wrong, *stream), "out") << "overlapping";
  wrong = right;
  wrong.out = right.in;
  EXPECT_EQ(refused(kernel, wrong, *stream), "out") << "the same";
  wrong = right;
  wrong.out = floats(out.view(), 0, 999);
  EXPECT_EQ(refused(kernel, wrong, *stream), "out") << "too short";
  wrong = right;
  wrong.in = floats(in_host.view(), 0, 1000);
  EXPECT_EQ(refused(kernel, wrong, *stream), "in") << "on the host";
  wrong = right;
  wrong.in = ps::TensorView(in.view().data, ps::DType::f16, {1000}, gpu.place());
  EXPECT_EQ(refused(kernel, wrong, *stream), "in") << "of another type";
  wrong = right;
  wrong.in = ps::TensorView(in.view().data + 1, ps::DType::f32, {1000}, gpu.place());
  EXPECT_EQ(refused(kernel, wrong, *stream), "in") << "misaligned";
  wrong = right;
  wrong.rounds = -1;
  EXPECT_EQ(refused(kernel, wrong, *stream), "rounds");
  stream->synchronize();
}

TEST_F(CopyLadderGpu, RefusesCoefficientsOfAnotherSize) {
  make_arrays(10'000);
  for (const auto& [rung, kernel] : all_kernels()) {
    if (kernel.formula != Formula::row || !why_not(kernel, gpu).empty()) continue;
    auto wrong = options(kernel, {.count = 10'000});
    wrong.coefficients = {};
    EXPECT_EQ(refused(kernel, wrong, *stream), "coefficients");
  }
}

TEST_F(CopyLadderGpu, SaysWhatItNeeds) {
  for (const auto& [rung, kernel] : all_kernels()) {
    EXPECT_NE(why_not(kernel, ps::Device::cpu()), "") << rung << ", " << kernel.label;
    if (!why_not(kernel, gpu).empty()) continue;
    const ladder::KernelUse use = kernel.use();
    EXPECT_GT(use.registers, 0) << kernel.label;
    EXPECT_GT(use.blocks, 0) << rung << ", " << kernel.label << ": does not fit";
    EXPECT_LE(use.occupancy, 1.0) << kernel.label;
  }
}

}  // namespace
