#include "resample/support/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "ops/resample/formula.h"
#include "penstock/host/stream.h"
#include "penstock/ops/resample.h"

namespace ladder::resample {
namespace {

constexpr std::size_t sector_bytes = 32;
constexpr unsigned shortest = 50;      // of ragged episodes
constexpr std::uint16_t nan = 0xFFFF;  // one of bf16, and two are one of f32

class Numbers {
 public:
  // Between 0 and 1.
  float uniform() { return static_cast<float>(random_() >> 8) * 0x1p-24F; }
  // Both included.
  unsigned between(unsigned least, unsigned most) {
    return least + static_cast<unsigned>(uniform() * static_cast<float>(most - least + 1));
  }
  // The words of an element: bf16 is the upper half of a float.
  void append_element(std::vector<std::uint16_t>& to, ps::DType type) {
    const auto bits = std::bit_cast<std::uint32_t>(2 * uniform() - 1);
    if (type == ps::DType::f32) to.push_back(static_cast<std::uint16_t>(bits));
    to.push_back(static_cast<std::uint16_t>(bits >> 16));
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

std::size_t words_of(const Shape& shape) {
  return shape.columns * size_of(shape.type) / sizeof(std::uint16_t);
}

}  // namespace

std::string name(const Shape& shape, Clock clock) {
  return fmt::format("{}, {}{} to {}, {}{}, {}", shape.episodes,
                     shape.ragged ? fmt::format("{}-", shortest) : "", shape.samples, shape.targets,
                     shape.columns, shape.type == ps::DType::f32 ? " f32" : "",
                     clock == Clock::regular ? "regular" : "random");
}

Data make_data(const Shape& shape, Clock clock) {
  Data data{.shape = shape};
  Numbers numbers;
  if (shape.ragged) {
    data.lengths.resize(shape.episodes);
    std::ranges::generate(data.lengths, [&] {
      return static_cast<std::int32_t>(numbers.between(shortest, shape.samples));
    });
  }
  for (std::size_t episode = 0; episode < shape.episodes; ++episode) {
    const unsigned samples = data.samples_of(episode);
    if (clock == Clock::regular) {
      fill_regular(data.times, samples, numbers);
      fill_even(data.at, shape.targets, data.times[data.times.size() - samples], data.times.back());
    } else {
      fill_random(data.times, samples, numbers);
      fill_random(data.at, shape.targets, numbers);
    }
    data.times.resize((episode + 1) * shape.samples, NAN);
  }
  const std::size_t row = words_of(shape), episode_words = shape.samples * row;
  data.values.reserve(shape.episodes * episode_words);
  for (std::size_t episode = 0; episode < shape.episodes; ++episode) {
    const std::size_t own_end = data.values.size() + data.samples_of(episode) * row;
    while (data.values.size() < own_end) numbers.append_element(data.values, shape.type);
    data.values.resize((episode + 1) * episode_words, nan);
  }
  return data;
}

std::vector<std::uint16_t> expected(const Data& data) {
  const Shape& shape = data.shape;
  const std::int64_t episodes = shape.episodes, samples = shape.samples, targets = shape.targets,
                     columns = shape.columns;
  std::vector<std::uint16_t> out(data.at.size() * words_of(shape));
  const auto view = [](const auto& from, ps::DType type, auto... extent) {
    auto* const begin = const_cast<void*>(static_cast<const void*>(from.data()));
    return ps::TensorView(begin, type, {extent...});
  };
  ps::Sensor sensor{.values = view(data.values, shape.type, episodes, samples, columns),
                    .times = view(data.times, ps::DType::f32, episodes, samples)};
  if (!data.lengths.empty()) sensor.lengths = view(data.lengths, ps::DType::i32, episodes);
  const ps::Stream stream(ps::Device::cpu());
  ps::resample({.sensors = {sensor},
                .at = view(data.at, ps::DType::f32, episodes, targets),
                .out = view(out, shape.type, episodes, targets, columns)},
               stream);
  stream.synchronize();
  return out;
}

std::size_t least_bytes(const Data& data) {
  using namespace ps::resampling;
  const Shape& shape = data.shape;
  const std::size_t row_bytes = shape.columns * size_of(shape.type);
  std::size_t own_samples = 0;
  std::size_t sectors = 0, next_sector = 0;  // which is the first that is not counted yet
  for (std::size_t episode = 0; episode < shape.episodes; ++episode) {
    const unsigned samples = data.samples_of(episode);
    own_samples += samples;
    const Times<float> times{data.times.data() + episode * shape.samples, 1, samples};
    std::vector<bool> used(samples);
    for (std::size_t i = 0; i < shape.targets; ++i) {
      const float t = data.at[episode * shape.targets + i];
      const Pick picked =
          pick(locate(times, t, 0, false), times, t, ps::Interpolation::linear, ps::Outside::clamp);
      if (picked.action != Action::blend && picked.action != Action::copy) continue;
      used[static_cast<std::size_t>(picked.first)] = true;
      used[static_cast<std::size_t>(picked.second)] = true;
    }
    for (std::size_t i = 0; i < samples; ++i) {
      if (!used[i]) continue;
      const std::size_t begin = (episode * shape.samples + i) * row_bytes, end = begin + row_bytes;
      const std::size_t first = std::max(begin / sector_bytes, next_sector);
      next_sector = (end + sector_bytes - 1) / sector_bytes;
      sectors += next_sector - first;
    }
  }
  const std::size_t results = data.at.size() * row_bytes;
  return sectors * sector_bytes + (own_samples + data.at.size()) * sizeof(float) +
         data.lengths.size() * sizeof(std::int32_t) + results;
}

}  // namespace ladder::resample
