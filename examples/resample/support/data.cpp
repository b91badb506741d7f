#include "resample/support/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <random>

#include "ops/resample/formula.h"
#include "penstock/host/stream.h"
#include "penstock/ops/resample.h"

namespace ladder::resample {
namespace {

constexpr std::size_t sector_bytes = 32;

class Numbers {
 public:
  // Between 0 and 1.
  float uniform() { return static_cast<float>(random_() >> 8) * 0x1p-24F; }
  // Of bf16: the upper half of a float.
  std::uint16_t element() {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(2 * uniform() - 1) >> 16);
  }

 private:
  // The same in every run. NOLINTNEXTLINE(bugprone-random-generator-seed)
  std::mt19937 random_{20261116};
};

void fill_regular(std::vector<float>& to, unsigned count, Numbers& numbers) {
  for (unsigned i = 0; i < count; ++i) {
    const float jitter = 0.2F * numbers.uniform() - 0.1F;
    to.push_back((static_cast<float>(i) + jitter) / static_cast<float>(count));
  }
}

void fill_random(std::vector<float>& to, unsigned count, Numbers& numbers) {
  const auto begin = static_cast<std::ptrdiff_t>(to.size());
  for (unsigned i = 0; i < count; ++i) to.push_back(numbers.uniform());
  std::sort(to.begin() + begin, to.end());
}

// From the first time to the last in even steps.
void fill_even(std::vector<float>& to, unsigned count, float first, float last) {
  const float step = count > 1 ? (last - first) / static_cast<float>(count - 1) : 0.0F;
  for (unsigned i = 0; i < count; ++i) to.push_back(first + step * static_cast<float>(i));
}

}  // namespace

std::string name(const Shape& shape, Clock clock) {
  return fmt::format("{}, {} to {}, {}, {}", shape.episodes, shape.samples, shape.targets,
                     shape.columns, clock == Clock::regular ? "regular" : "random");
}

Data make_data(const Shape& shape, Clock clock) {
  Data data{.shape = shape};
  Numbers numbers;
  for (unsigned episode = 0; episode < shape.episodes; ++episode) {
    if (clock == Clock::regular) {
      fill_regular(data.times, shape.samples, numbers);
      fill_even(data.at, shape.targets, data.times[data.times.size() - shape.samples],
                data.times.back());
    } else {
      fill_random(data.times, shape.samples, numbers);
      fill_random(data.at, shape.targets, numbers);
    }
  }
  data.values.resize(data.times.size() * shape.columns);
  std::ranges::generate(data.values, [&] { return numbers.element(); });
  return data;
}

std::vector<std::uint16_t> expected(const Data& data) {
  const Shape& shape = data.shape;
  const std::int64_t episodes = shape.episodes, samples = shape.samples, targets = shape.targets,
                     columns = shape.columns;
  std::vector<std::uint16_t> out(data.at.size() * shape.columns);
  const auto view = [](const auto& from, ps::DType type, auto... extent) {
    auto* const begin = const_cast<void*>(static_cast<const void*>(from.data()));
    return ps::TensorView(begin, type, {extent...});
  };
  const ps::Stream stream(ps::Device::cpu());
  ps::resample(
      {.sensors = {{.values = view(data.values, ps::DType::bf16, episodes, samples, columns),
                    .times = view(data.times, ps::DType::f32, episodes, samples)}},
       .at = view(data.at, ps::DType::f32, episodes, targets),
       .out = view(out, ps::DType::bf16, episodes, targets, columns)},
      stream);
  stream.synchronize();
  return out;
}

std::size_t least_bytes(const Data& data) {
  using namespace ps::resampling;
  const Shape& shape = data.shape;
  const std::size_t row_bytes = shape.columns * sizeof(std::uint16_t);
  std::size_t sectors = 0, next_sector = 0;  // which is the first that is not counted yet
  for (std::size_t episode = 0; episode < shape.episodes; ++episode) {
    const Times<float> times{data.times.data() + episode * shape.samples, 1, shape.samples};
    std::vector<bool> used(shape.samples);
    for (std::size_t i = 0; i < shape.targets; ++i) {
      const float t = data.at[episode * shape.targets + i];
      const Pick picked =
          pick(locate(times, t, 0, false), times, t, ps::Interpolation::linear, ps::Outside::clamp);
      if (picked.action != Action::blend && picked.action != Action::copy) continue;
      used[static_cast<std::size_t>(picked.first)] = true;
      used[static_cast<std::size_t>(picked.second)] = true;
    }
    for (std::size_t i = 0; i < shape.samples; ++i) {
      if (!used[i]) continue;
      const std::size_t begin = (episode * shape.samples + i) * row_bytes, end = begin + row_bytes;
      const std::size_t first = std::max(begin / sector_bytes, next_sector);
      next_sector = (end + sector_bytes - 1) / sector_bytes;
      sectors += next_sector - first;
    }
  }
  const std::size_t results = data.at.size() * row_bytes;
  return sectors * sector_bytes + (data.times.size() + data.at.size()) * sizeof(float) + results;
}

}  // namespace ladder::resample
