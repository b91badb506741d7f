// Every kernel of the resample ladder gives the CPU's bits, of both types, at any size and
// alignment, writes nothing else, and refuses what it cannot do.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpu/gpu_test.h"
#include "gpu/resample_call.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"
#include "penstock/ops/resample.h"
#include "resample/support/rung.h"
#include "support/ladder.h"

namespace {

using ladder::resample::Kernel;
using ladder::resample::Options;

constexpr std::int64_t margin = 64;         // elements on both sides of what a kernel may write
constexpr std::uint8_t unwritten = 0xA5;    // bytes of numbers that no result comes to
constexpr std::uint16_t nan_word = 0x7FC1;  // one is a NaN of bf16, two are one of f32

// Elements are kept as their bits in words of 16; an f32 has two.
using Words = std::vector<std::uint16_t>;

std::size_t words_of(ps::DType type) { return size_of(type) / sizeof(std::uint16_t); }

// As those of an f32, whose upper half a bf16 is.
std::uint32_t bits_at(const Words& from, std::size_t element, ps::DType type) {
  if (type == ps::DType::bf16) return std::uint32_t{from[element]} << 16;
  return std::uint32_t{from[2 * element + 1]} << 16 | from[2 * element];
}

bool is_nan(std::uint32_t bits) { return (bits & 0x7FFF'FFFF) > 0x7F80'0000; }

std::vector<std::pair<std::string, Kernel>> all_kernels() {
  std::vector<std::pair<std::string, Kernel>> all;
  for (const ladder::resample::RungKernels& rung : ladder::resample::all_kernels()) {
    for (const Kernel& kernel : rung.kernels()) all.emplace_back(rung.rung, kernel);
  }
  return all;
}

struct Size {
  std::int64_t episodes = 0, samples = 0, targets = 0, columns = 0;
  std::int64_t values_offset = 0, out_offset = 0;  // elements off a boundary
  bool sorted = false;                             // targets, and as they come from a clock
  bool ragged = false;                             // episodes have lengths
  ps::DType type = ps::DType::bf16;
};

// Arrays of one size on the host, with what a caller may come with: times that repeat, targets at
// samples' very times, outside of all, NaN and infinite, values of all kinds. Behind an episode's
// length times and values are NaN, so that a use of them shows.
class Arrays {
 public:
  Arrays(const Size& size, unsigned seed) : size_(size), random_(seed) {
    const std::int64_t b = size.episodes, s = size.samples, t = size.targets, d = size.columns;
    for (std::int64_t episode = 0; episode < b; ++episode) {
      const std::int64_t own = size.ragged ? length() : s;
      const std::size_t begin = times.size(), first_value = values.size();
      for (std::int64_t i = 0; i < own; ++i) times.push_back(time());
      std::sort(times.begin() + static_cast<std::ptrdiff_t>(begin), times.end());
      const std::size_t first_target = at.size();
      for (std::int64_t i = 0; i < t; ++i) at.push_back(target(begin));
      if (size.sorted) {
        std::sort(at.begin() + static_cast<std::ptrdiff_t>(first_target), at.end());
      }
      for (std::int64_t i = 0; i < own * d; ++i) append_value();
      times.resize(begin + static_cast<std::size_t>(s), NAN);
      values.resize(first_value + static_cast<std::size_t>(s * d) * words_of(size.type), nan_word);
    }
    wanted.resize(static_cast<std::size_t>(b * t * d) * words_of(size.type));
  }

  // By the library on the CPU.
  void compute() {
    const ps::Stream stream(ps::Device::cpu());
    const Options all =
        options(values.data(), times.data(), lengths.data(), at.data(), wanted.data(), {});
    ps::resample({.sensors = {{.values = all.values, .times = all.times, .lengths = all.lengths}},
                  .at = all.at,
                  .out = all.out},
                 stream);
    stream.synchronize();
  }

  Options options(void* from, void* of_samples, void* of_episodes, void* of_targets, void* to,
                  ps::Place place) const {
    const std::int64_t b = size_.episodes, s = size_.samples, t = size_.targets, d = size_.columns;
    Options made{.values = {from, size_.type, {b, s, d}, place},
                 .times = {of_samples, ps::DType::f32, {b, s}, place},
                 .at = {of_targets, ps::DType::f32, {b, t}, place},
                 .out = {to, size_.type, {b, t, d}, place}};
    if (size_.ragged) made.lengths = {of_episodes, ps::DType::i32, {b}, place};
    return made;
  }

  Words values, wanted;
  std::vector<float> times, at;
  std::vector<std::int32_t> lengths;

 private:
  float uniform() { return static_cast<float>(random_() >> 8) * 0x1p-24F; }
  float time() {
    if (random_() % 400 == 0) return random_() % 2 == 0 ? INFINITY : -INFINITY;
    const float t = uniform() * 10;
    return random_() % 4 == 0 ? std::floor(t) : t;  // some several times
  }
  // Of the next episode. One that cannot be counts as none.
  std::int64_t length() {
    const auto s = static_cast<std::int32_t>(size_.samples);
    const std::int32_t any = static_cast<std::int32_t>(random_() % (size_.samples + 1U));
    const std::int32_t choice[] = {0, s, -1, s + 1, any, any, any, any};
    lengths.push_back(choice[random_() % std::size(choice)]);
    return lengths.back() > s ? 0 : std::max(lengths.back(), 0);
  }
  // For the episode whose times are all from `begin` on.
  float target(std::size_t begin) {
    if (!size_.sorted && random_() % 100 == 0) return NAN;  // which has no place in an order
    if (random_() % 200 == 0) return random_() % 2 == 0 ? INFINITY : -INFINITY;
    if (times.size() > begin && random_() % 5 == 0) {
      return times[begin + random_() % (times.size() - begin)];
    }
    return uniform() * 12 - 1;
  }
  void append_value() {
    const bool odd = random_() % 1000 == 0;  // NaN or -infinity
    const auto bits = static_cast<std::uint32_t>(random_());
    if (size_.type == ps::DType::f32) values.push_back(static_cast<std::uint16_t>(odd ? 0 : bits));
    const std::uint32_t upper = bits >> 16;
    values.push_back(
        static_cast<std::uint16_t>(odd ? (upper % 2 == 0 ? nan_word : 0xFF80)
                                       : (upper & 0x80FF) | (0x3C00 + (upper & 0x0700))));
  }

  Size size_;
  std::mt19937 random_;
};

class ResampleLadderGpu : public ps::test::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    stream = ps::Stream(gpu);
  }

  // Memory for `count` of them, so many off a boundary, with poison in it and all around.
  template <class T>
  T* allocate(ps::DeviceBuffer& buffer, std::size_t count, std::int64_t offset) const {
    const auto before = static_cast<std::size_t>(margin + offset);
    buffer = ps::DeviceBuffer(gpu, (before + count + margin) * sizeof(T));
    ps::fill(buffer.view(), ps::test::poison, *stream);
    return buffer.view().as<T>() + before;
  }
  template <class T>
  T* upload(ps::DeviceBuffer& buffer, const std::vector<T>& from, std::int64_t offset) const {
    T* const to = allocate<T>(buffer, from.size(), offset);
    const auto before = static_cast<std::size_t>(margin + offset) * sizeof(T);
    if (!from.empty()) ps::test::send(buffer.view(), before, from, *stream);
    return to;
  }

  // All kernels that this GPU can run, on one size of both types.
  void check_all(Size size, unsigned seed = 1) const {
    for (const ps::DType type : {ps::DType::bf16, ps::DType::f32}) {
      size.type = type;
      check_type(size, seed);
      if (HasFatalFailure()) return;
    }
  }

  void check_type(const Size& size, unsigned seed) const {
    SCOPED_TRACE(testing::Message()
                 << size.episodes << ", " << size.samples << " to " << size.targets << ", "
                 << size.columns << ' ' << name(size.type) << (size.ragged ? " ragged" : "")
                 << ", offsets " << size.values_offset << " and " << size.out_offset << ", seed "
                 << seed);
    Arrays arrays(size, seed);
    arrays.compute();
    const auto words = static_cast<std::int64_t>(words_of(size.type));
    ps::DeviceBuffer values, times, lengths, at, out;
    auto* const from = upload(values, arrays.values, size.values_offset * words);
    auto* const of_samples = upload(times, arrays.times, 0);
    auto* const of_episodes = upload(lengths, arrays.lengths, 0);
    auto* const of_targets = upload(at, arrays.at, 0);
    const std::int64_t out_offset = size.out_offset * words;
    auto* const to = allocate<std::uint16_t>(out, arrays.wanted.size(), out_offset);
    const Options options =
        arrays.options(from, of_samples, of_episodes, of_targets, to, gpu.place());
    for (const auto& [rung, kernel] : all_kernels()) {
      if (!why_not(kernel, gpu).empty()) continue;
      SCOPED_TRACE(rung + ", " + kernel.label);
      ps::fill(out.view(), unwritten, *stream);
      enqueue(kernel, options, *stream);
      const auto got = ps::test::fetch<std::uint16_t>(out.view(), 0,
                                                      out.bytes() / sizeof(std::uint16_t), *stream);
      compare(got, arrays.wanted, static_cast<std::size_t>(margin + out_offset), size.type);
      if (HasFatalFailure()) return;
    }
  }

  // Results stand in `got` from `begin` on. Bits of a NaN are not promised.
  static void compare(const Words& got, const Words& wanted, std::size_t begin, ps::DType type) {
    constexpr std::uint16_t untouched = unwritten << 8 | unwritten;
    const auto first = got.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto end = first + static_cast<std::ptrdiff_t>(wanted.size());
    const auto is_untouched = [](std::uint16_t word) { return word == untouched; };
    ASSERT_TRUE(std::all_of(got.begin(), first, is_untouched)) << "wrote before the results";
    ASSERT_TRUE(std::all_of(end, got.end(), is_untouched)) << "wrote behind the results";

    const Words results(first, end);
    for (std::size_t i = 0; i < results.size() / words_of(type); ++i) {
      const std::uint32_t is = bits_at(results, i, type), right = bits_at(wanted, i, type);
      if (is == right || (is_nan(is) && is_nan(right))) continue;
      FAIL() << "element " << i << " is " << std::hex << is << " in bits, not " << right;
    }
  }

  std::optional<ps::Stream> stream;
};

TEST_F(ResampleLadderGpu, EveryRungHasKernels) {
  const std::vector<std::string> with_kernels{"baseline", "warp-search", "vectorised", "cp.async",
                                              "bulk",     "tensor",      "persistent", "library"};
  std::vector<std::string> found;
  for (const auto& rung : ladder::resample::all_kernels()) {
    found.emplace_back(rung.rung);
    EXPECT_FALSE(rung.kernels().empty()) << rung.rung;
  }
  EXPECT_TRUE(std::ranges::is_permutation(found, with_kernels));
}

TEST_F(ResampleLadderGpu, AnyWidth) {
  for (const std::int64_t columns :
       {1, 2, 7, 8, 9, 16, 24, 31, 32, 40, 64, 100, 128, 248, 256, 257, 264, 320, 512, 520, 2048}) {
    check_all({.episodes = 3, .samples = 70, .targets = 45, .columns = columns});
  }
}

// Beyond what the rungs on bulk copies have room for.
TEST_F(ResampleLadderGpu, WideRows) {
  for (const std::int64_t columns : {4096, 8192, 8200, 16384, 16392}) {
    check_all({.episodes = 2, .samples = 9, .targets = 11, .columns = columns});
  }
}

TEST_F(ResampleLadderGpu, AnyLength) {
  for (const std::int64_t samples : {1, 2, 3, 31, 32, 33, 34, 64, 65, 1000, 1024, 1057, 40'000}) {
    for (const std::int64_t columns : {5, 16, 256}) {
      check_all({.episodes = 2, .samples = samples, .targets = 50, .columns = columns});
    }
  }
}

TEST_F(ResampleLadderGpu, AnyNumberOfTargets) {
  for (const std::int64_t targets : {1, 2, 7, 15, 16, 17, 31, 32, 33, 127, 128, 129, 1000}) {
    check_all({.episodes = 1, .samples = 80, .targets = targets, .columns = 64});
    check_all({.episodes = 5, .samples = 80, .targets = targets, .columns = 64, .sorted = true});
  }
}

TEST_F(ResampleLadderGpu, TargetsInOrder) {
  check_all({.episodes = 20, .samples = 500, .targets = 256, .columns = 256, .sorted = true});
  check_all({.episodes = 3, .samples = 4096, .targets = 1024, .columns = 128, .sorted = true});
  check_all({.episodes = 20, .samples = 500, .targets = 250, .columns = 32, .sorted = true});
  check_all({.episodes = 2, .samples = 3000, .targets = 1500, .columns = 512, .sorted = true});
  check_all({.episodes = 4, .samples = 50, .targets = 900, .columns = 72, .sorted = true});
}

TEST_F(ResampleLadderGpu, AnyAlignment) {
  for (const std::int64_t values_offset : {0, 1, 2, 4, 7, 8}) {
    for (const std::int64_t out_offset : {0, 1, 3, 4, 8}) {
      check_all({.episodes = 2,
                 .samples = 60,
                 .targets = 70,
                 .columns = 64,
                 .values_offset = values_offset,
                 .out_offset = out_offset});
    }
  }
}

TEST_F(ResampleLadderGpu, EpisodesOfAnyLength) {
  for (const std::int64_t samples : {1, 40, 1000}) {
    for (const std::int64_t columns : {5, 16, 256}) {
      for (const bool sorted : {false, true}) {
        check_all({.episodes = 24,
                   .samples = samples,
                   .targets = 50,
                   .columns = columns,
                   .sorted = sorted,
                   .ragged = true});
      }
    }
  }
}

TEST_F(ResampleLadderGpu, ManyTargetsOnEveryBlock) {
  // Rings turn over several times, and phases with them.
  check_all({.episodes = 700, .samples = 40, .targets = 256, .columns = 8, .sorted = true});
  check_all({.episodes = 256, .samples = 60, .targets = 256, .columns = 128});
}

TEST_F(ResampleLadderGpu, RandomSizes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 generator(seed);
  for (unsigned i = 0; i < 40; ++i) {
    const auto any = [&](std::int64_t least, std::int64_t most) {
      return std::uniform_int_distribution<std::int64_t>(least, most)(generator);
    };
    const std::int64_t step = i % 2 == 0 ? 8 : 1;  // every other one is whole vectors
    check_all({.episodes = any(1, 6),
               .samples = any(1, 400),
               .targets = any(1, 300),
               .columns = any(1, 600 / step) * step,
               .values_offset = any(0, 1) * step,
               .out_offset = any(0, 1) * step,
               .sorted = any(0, 1) == 0,
               .ragged = any(0, 1) == 0},
              seed + i);
  }
}

TEST_F(ResampleLadderGpu, NoSamplesAreNaN) {
  check_all({.episodes = 2, .samples = 0, .targets = 5, .columns = 16});
  check_all({.episodes = 2, .samples = 0, .targets = 5, .columns = 3});
  check_all({.episodes = 9, .samples = 0, .targets = 5, .columns = 16, .ragged = true});
}

TEST_F(ResampleLadderGpu, NothingIsNothing) {
  check_all({.episodes = 0, .samples = 4, .targets = 4, .columns = 8});
  check_all({.episodes = 0, .samples = 4, .targets = 4, .columns = 8, .ragged = true});
  check_all({.episodes = 3, .samples = 4, .targets = 0, .columns = 8});
  check_all({.episodes = 3, .samples = 4, .targets = 4, .columns = 0});
}

TEST_F(ResampleLadderGpu, IsClimbed) {
  ladder::Context context({.device = gpu, .quick = true});
  std::vector<ladder::Rung> rungs = ladder::rungs();
  std::erase_if(rungs, [](const ladder::Rung& rung) { return rung.ladder != "resample"; });
  EXPECT_EQ(rungs.size(), 8u);
  for (const auto& [rung, rows] : climb(context, rungs, [](const auto&, double) {})) {
    EXPECT_GE(rows.size(), 6u) << rung.name << ": regular and random times of three shapes";
    for (const ladder::Row& row : rows) {
      SCOPED_TRACE(testing::Message() << rung.name << ", " << row.label << ", " << row.work);
      EXPECT_FALSE(row.note.empty());
      EXPECT_TRUE(row.seconds == 0 || row.efficiency.value_or(0) > 0);
      EXPECT_TRUE(row.seconds == 0 || row.library.value_or(0) > 0);
      // A row that was left to another kernel shows neither its time nor this kernel's registers.
      const bool left = row.note.starts_with("left to the rung warp-search");
      EXPECT_TRUE(!left || (row.seconds == 0 && !row.use));
      const bool odd = row.work.starts_with("16, 100 to 50, 14");
      const bool needs_vectors =
          rung.name != "baseline" && rung.name != "warp-search" && rung.name != "library";
      EXPECT_EQ(left, odd && needs_vectors) << row.note;
    }
  }
}

// What enqueue() says to the options, by the argument that it names.
std::string refused(const Kernel& kernel, const Options& options, const ps::Stream& stream) {
  try {
    enqueue(kernel, options, stream);
  } catch (const ps::InvalidArgument& error) {
    return error.argument();
  }
  return "";
}

TEST_F(ResampleLadderGpu, RefusesWhatItCannotDo) {
  const Kernel kernel = all_kernels().front().second;
  const ps::DeviceBuffer memory(gpu, 1 << 20);
  ps::fill(memory.view(), 0, *stream);
  auto* const data = memory.view().as<float>();
  const ps::Place place = gpu.place();
  const Options right{.values = {data, ps::DType::bf16, {2, 10, 4}, place},
                      .times = {data + 1000, ps::DType::f32, {2, 10}, place},
                      .at = {data + 2000, ps::DType::f32, {2, 6}, place},
                      .out = {data + 3000, ps::DType::bf16, {2, 6, 4}, place}};
  EXPECT_EQ(refused(kernel, right, *stream), "");
  auto ragged = right;
  ragged.lengths = {data + 4000, ps::DType::i32, {2}, place};
  EXPECT_EQ(refused(kernel, ragged, *stream), "");

  auto wrong = right;
  wrong.out = {data, ps::DType::bf16, {2, 6, 4}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "out") << "overlapping";
  wrong = right;
  wrong.out = {data + 3000, ps::DType::bf16, {2, 5, 4}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "out") << "too few targets";
  wrong = right;
  wrong.out = {data + 3000, ps::DType::f16, {2, 6, 4}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "out") << "of another type";
  wrong = right;
  wrong.out = {data + 3000, ps::DType::f32, {2, 6, 4}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "out") << "not of the values' type";
  wrong = right;
  wrong.values = {data, ps::DType::f16, {2, 10, 4}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "values") << "of another type";
  wrong = right;
  wrong.values = {data, ps::DType::bf16, {20, 4}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "values") << "of two dimensions";
  wrong = right;
  wrong.values = {reinterpret_cast<std::byte*>(data) + 1, ps::DType::bf16, {2, 10, 4}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "values") << "misaligned";
  wrong = right;
  wrong.values = {data, ps::DType::bf16, {2, 10, 4}};
  EXPECT_EQ(refused(kernel, wrong, *stream), "values") << "on the host";
  wrong = right;
  wrong.times = {data + 1000, ps::DType::f32, {2, 11}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "times") << "of other samples";
  wrong = right;
  wrong.at = {data + 2000, ps::DType::f32, {6}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "at") << "of one dimension";
  wrong = right;
  wrong.at = {data + 2000, ps::DType::f32, {3, 6}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "at") << "of other episodes";
  wrong = right;
  wrong.lengths = {data + 4000, ps::DType::i64, {2}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "lengths") << "of another type";
  wrong.lengths = {data + 4000, ps::DType::i32, {3}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "lengths") << "of other episodes";
  wrong.lengths = {data + 4000, ps::DType::i32, {2, 1}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "lengths") << "of two dimensions";
  wrong.lengths = {data + 4000, ps::DType::i32, {2}};
  EXPECT_EQ(refused(kernel, wrong, *stream), "lengths") << "on the host";
  wrong.lengths = {data + 3000, ps::DType::i32, {2}, place};
  EXPECT_EQ(refused(kernel, wrong, *stream), "out") << "overlapping";
  stream->synchronize();
}

TEST_F(ResampleLadderGpu, SaysWhatItNeeds) {
  for (const auto& [rung, kernel] : all_kernels()) {
    EXPECT_NE(why_not(kernel, ps::Device::cpu()), "") << rung << ", " << kernel.label;
    if (!why_not(kernel, gpu).empty()) continue;
    for (const ps::DType type : {ps::DType::bf16, ps::DType::f32}) {
      SCOPED_TRACE(testing::Message() << rung << ", " << kernel.label << ", " << name(type));
      EXPECT_NE(kernel.launch.of(type), nullptr);
      if (kernel.use.of(type) == nullptr) continue;
      const ladder::KernelUse use = kernel.use.of(type)();
      EXPECT_GT(use.registers, 0);
      EXPECT_GT(use.blocks, 0) << "does not fit";
      EXPECT_LE(use.occupancy, 1.0);
    }
  }
}

}  // namespace
