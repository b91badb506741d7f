// resample on the CPU, on all cores and on one thread. Its floor is memory alone: the cache lines
// of samples that results refer to, each once, times and target times are read and the results
// written. memcpy, which reads half of these bytes and writes the other half, is a yardstick. All
// runs are interleaved. Writes bench/results/resample_cpu.json.
//
//   bench_resample_cpu --output bench/results/resample_cpu.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "host/copy_past_caches.h"
#include "ops/resample/arguments.h"
#include "ops/resample/cpu.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/parallel.h"
#include "penstock/measure/limits.h"
#include "penstock/measure/timing.h"
#include "penstock/ops/resample.h"
#include "support/guarded.h"
#include "support/in_turn.h"
#include "support/memory_mix.h"
#include "support/results.h"

namespace {

using bench::Json;
using bench::microseconds;

struct Settings {
  std::string output;
  int turns = 31;
  unsigned seed = 1;
};

struct Shape {
  std::int64_t episodes = 0, samples = 0, targets = 0, columns = 0;
  ps::DType type = ps::DType::bf16;
  bool ragged = false;  // episodes have `shortest` to `samples` of them
};
constexpr std::int64_t shortest = 50;
constexpr Shape shapes[] = {{512, 1000, 500, 64, ps::DType::f32},
                            {32, 500, 256, 256},
                            {256, 500, 256, 256},
                            {1024, 500, 256, 256},
                            {16, 20000, 10000, 512},
                            {64, 4096, 1024, 128},
                            {256, 1000, 256, 256, ps::DType::bf16, true}};

float as_float(const std::byte* data, ps::DType type, std::int64_t i) {
  if (type == ps::DType::f32) return reinterpret_cast<const float*>(data)[i];
  const std::uint32_t bits = reinterpret_cast<const std::uint16_t*>(data)[i];
  return std::bit_cast<float>(bits << 16);
}

// A fixed rate with a tenth of jitter and an even clock; or all of them random. In order.
void draw_times(std::mt19937& random, bool regular, const Shape& s,
                const std::vector<std::int32_t>& lengths, std::vector<float>& times,
                std::vector<float>& at) {
  std::uniform_real_distribution<float> some(0, 1);
  for (std::int64_t b = 0; b < s.episodes; ++b) {
    const std::int32_t samples = lengths[static_cast<std::size_t>(b)];
    float *first = times.data() + b * s.samples, *wanted = at.data() + b * s.targets;
    const auto count = static_cast<float>(samples), steps = static_cast<float>(s.targets - 1);
    for (std::int64_t i = 0; i < samples; ++i) {
      const float jitter = 0.2F * (some(random) - 0.5F);
      first[i] = regular ? (static_cast<float>(i) + jitter) / count : some(random);
    }
    std::sort(first, first + samples);
    const float begin = first[0], length = first[samples - 1] - begin;
    for (std::int64_t i = 0; i < s.targets; ++i) {
      wanted[i] = regular ? begin + length * (static_cast<float>(i) / steps) : some(random);
    }
    std::sort(wanted, wanted + s.targets);
  }
}

// One shape with its data; every page of it is there before anything is timed.
class Call {
 public:
  Call(const Shape& shape, bool regular, unsigned seed)
      : shape_(shape),
        row_(static_cast<std::size_t>(shape.columns) * ps::size_of(shape.type)),
        lengths_(static_cast<std::size_t>(shape.episodes),
                 static_cast<std::int32_t>(shape.samples)),
        times_(static_cast<std::size_t>(shape.episodes * shape.samples)),
        at_(static_cast<std::size_t>(shape.episodes * shape.targets)),
        values_bytes_(times_.size() * row_),
        out_bytes_(at_.size() * row_),
        // Memory alone is measured in the same memory, which may take more of it.
        values_(ps::Device::cpu(), values_bytes_ + out_bytes_),
        out_(ps::Device::cpu(), values_bytes_ + out_bytes_) {
    std::memset(values_.view().data, 1, values_.view().bytes);
    std::mt19937 random(seed);
    if (shape.ragged) {
      std::uniform_int_distribution<std::int32_t> length(shortest,
                                                         static_cast<std::int32_t>(shape.samples));
      for (std::int32_t& each : lengths_) each = length(random);
    }
    draw_times(random, regular, shape, lengths_, times_, at_);
    const std::size_t count = values_bytes_ / ps::size_of(shape.type);
    for (std::size_t i = 0; i < count; ++i) {
      const float x = static_cast<float>(random() >> 8) * 0x1p-23F - 1;
      const auto bits = std::bit_cast<std::uint32_t>(x);
      if (shape.type == ps::DType::f32) {
        values_.view().as<float>()[i] = x;
      } else {
        values_.view().as<std::uint16_t>()[i] = static_cast<std::uint16_t>(bits >> 16);
      }
    }
    std::memset(out_.view().data, 0xFF, out_.view().bytes);
  }

  ps::ResampleOptions options() const {
    const auto [b, s, t, d, type, ragged] = shape_;
    ps::Sensor sensor{.values = {values_.view().data, type, {b, s, d}},
                      .times = {const_cast<float*>(times_.data()), ps::DType::f32, {b, s}}};
    if (ragged) {
      sensor.lengths = {const_cast<std::int32_t*>(lengths_.data()), ps::DType::i32, {b}};
    }
    return {.sensors = {sensor},
            .at = {const_cast<float*>(at_.data()), ps::DType::f32, {b, t}},
            .out = {out_.view().data, type, {b, t, d}}};
  }

  // The memory of the values and of the results, and a little more.
  ps::MemoryView from() const { return values_.view(); }
  ps::MemoryView to() const { return out_.view(); }

  // Every element, against arithmetic and a search of its own.
  struct Checked {
    double error = 0;       // the largest, in units of the samples' last digit
    std::size_t bytes = 0;  // that a call moves
    // That no call can do without: a search need not read every time.
    std::size_t read = 0, written = 0;
  };
  Checked check() const {
    Checked result;
    std::vector<bool> used(values_bytes_ / 64 + 1);  // lines; the buffer begins with one
    std::size_t samples = 0;
    for (std::int64_t b = 0; b < shape_.episodes; ++b) {
      const float* times = times_.data() + b * shape_.samples;
      const std::int64_t own = lengths_[static_cast<std::size_t>(b)];
      samples += static_cast<std::size_t>(own);
      for (std::int64_t i = 0; i < shape_.targets; ++i) {
        const float t = at_[static_cast<std::size_t>(b * shape_.targets + i)];
        const std::int64_t after = std::upper_bound(times, times + own, t) - times;
        const std::int64_t x = std::max<std::int64_t>(after - 1, 0);
        const std::int64_t y = std::min(after, own - 1);
        const bool between = after > 0 && y > x && times[x] != t;
        const double w = between ? (double{t} - times[x]) / (double{times[y]} - times[x]) : 0;
        result.error = std::max(
            result.error,
            error_of(b * shape_.targets + i, b * shape_.samples + x, b * shape_.samples + y, w));
        for (const std::int64_t row : {x, between ? y : x}) {
          const std::size_t begin = static_cast<std::size_t>(b * shape_.samples + row) * row_;
          for (std::size_t at = begin / 64; at <= (begin + row_ - 1) / 64; ++at) used[at] = true;
        }
      }
    }
    const auto lines = static_cast<std::size_t>(std::count(used.begin(), used.end(), true));
    result.read = lines * 64 + at_.size() * sizeof(float);
    result.written = out_bytes_;
    result.bytes = result.read + samples * sizeof(float) + result.written;
    return result;
  }

 private:
  double error_of(std::int64_t out, std::int64_t x, std::int64_t y, double w) const {
    const double unit = shape_.type == ps::DType::f32 ? 0x1p-23 : 0x1p-7;
    double worst = 0;
    for (std::int64_t d = 0; d < shape_.columns; ++d) {
      const auto at = [&](const ps::PinnedBuffer& rows, std::int64_t row) {
        return double{as_float(rows.view().data, shape_.type, row * shape_.columns + d)};
      };
      const double first = at(values_, x), second = at(values_, y);
      const double wanted = first + w * (second - first), size = std::abs(first) + std::abs(second);
      const double error = std::abs(at(out_, out) - wanted) / (unit * std::max(size, 0x1p-100));
      worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
    }
    return worst;
  }

  Shape shape_;
  std::size_t row_;
  std::vector<std::int32_t> lengths_;
  std::vector<float> times_, at_;
  std::size_t values_bytes_, out_bytes_;
  ps::PinnedBuffer values_, out_;
};

// Calls work(begin, end) for one range per thread.
void in_shares(std::size_t bytes, bool alone,
               const std::function<void(std::size_t, std::size_t)>& work) {
  if (alone) return work(0, bytes);
  ps::parallel_ranges(bytes, bytes / ps::parallel_threads() / 64 * 64 + 64, work);
}

Json measure(const Settings& settings, const Shape& shape, bool regular, bool alone) {
  const auto [b, s, t, d, type, ragged] = shape;
  const std::string samples = ragged ? fmt::format("{}-{}", shortest, s) : std::to_string(s);
  const std::string name =
      fmt::format("({}, {} to {}, {}) {}, {} times, {}", b, samples, t, d, ps::name(type),
                  regular ? "regular" : "random", alone ? "one thread" : "all cores");
  const Call call(shape, regular, settings.seed);
  const ps::Stream stream(ps::Device::cpu());
  const ps::ResampleOptions options = call.options();
  const auto work = ps::resampling::checked(options, ps::Device::cpu());
  const auto rows = ps::resampling::row_kernels(type);
  const auto targets = static_cast<std::size_t>(b * t);
  const auto ours = [&] {
    if (alone) {
      return ps::resampling::resample_range(work, rows, 0, targets);
    }
    ps::resample(options, stream);
    stream.synchronize();
  };
  ours();
  const auto [error, bytes, read, written] = call.check();
  if (!(error <= 1)) throw std::runtime_error(fmt::format("{}: wrong by {} units", name, error));
  const std::size_t half = bytes / 2;
  const ps::MemoryView from = call.from(), to = call.to();
  const auto copy = [&](auto how) {
    in_shares(half, alone, [&](std::size_t begin, std::size_t end) {
      how(to.data + begin, from.data + begin, end - begin);
    });
  };
  std::vector<std::function<void()>> runs = {
      ours, [&] { copy(std::memcpy); },
      [&] { copy([](auto... given) { ps::detail::copy_past_caches(given...); }); }};
  std::ranges::move(bench::memory_passes(
                        {.from = from.sub(0, read), .to = to.sub(0, written), .one_thread = alone}),
                    std::back_inserter(runs));
  const std::vector<std::vector<double>> seconds = bench::in_turn(settings.turns, runs);
  const double floor = bench::floor_of({seconds.begin() + 3, seconds.end()}).seconds();
  const char* const names[] = {"ours", "memcpy", "copy past caches"};
  double medians[3] = {};
  Json spread = Json::object();
  for (std::size_t i = 0; i < 3; ++i) {
    medians[i] = ps::median(seconds[i]);
    const auto [least, longest] = std::ranges::minmax(seconds[i]);
    spread[names[i]] = {microseconds(least), microseconds(longest)};
  }
  fmt::print("{:<58} {:>9}, {:.3f} x its floor of {}; memcpy takes {:.2f} of our time\n", name,
             ps::format_seconds(medians[0]), medians[0] / floor, ps::format_seconds(floor),
             medians[1] / medians[0]);
  return {{"case", name},
          {"params",
           {{"episodes", b},
            {"samples", s},
            {"targets", t},
            {"columns", d},
            {"dtype", ps::name(type)},
            {"ragged", ragged},
            {"regular", regular},
            {"threads", alone ? 1 : ps::parallel_threads()},
            {"turns", settings.turns},
            {"seed", settings.seed}}},
          {"correct", true},
          {"max_error", error},
          {"tolerance", 1},
          {"floor_us", microseconds(floor)},
          {"ours", {{"call_us", microseconds(medians[0])}}},
          {"peer",
           {{"memcpy", {{"call_us", microseconds(medians[1])}}},
            {"copy past caches", {{"call_us", microseconds(medians[2])}}}}},
          {"metrics",
           {{"bytes", bytes},
            {"GBps", static_cast<double>(bytes) / medians[0] * 1e-9},
            {"of_memcpy", medians[1] / medians[0]},
            {"over_floor", medians[0] / floor},
            {"least_and_most_us", spread}}}};
}

void run(const Settings& settings) {
  const ps::Device cpu = ps::Device::cpu();
  ps::LimitsOptions limit_options = ps::quick_limits();
  limit_options.disk = false;
  bench::Results results("resample_cpu", cpu, ps::measure_limits(cpu, limit_options));
  results.peer("memcpy", "the C library's");
  results.peer("copy past caches", "with non-temporal stores");
  for (const Shape& shape : shapes) {
    for (const bool regular : {true, false}) {
      for (const bool alone : {false, true}) {
        results.add(measure(settings, shape, regular, alone));
      }
    }
  }
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("resample on the CPU, beside memory alone and memcpy");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--turns", settings.turns, "Timed runs of each call; the median counts")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seed", settings.seed, "Seed of the random times and values");
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_resample_cpu", [&] { run(settings); });
}
