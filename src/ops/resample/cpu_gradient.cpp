// The CPU's gradient of resample. What each target time gives to samples is written down first and
// sorted by sample, stably: a sample's sum then takes the target times in their order, whatever
// order they are in, and belongs to one thread.
#include <algorithm>
#include <span>
#include <vector>

#include "ops/resample/cpu.h"
#include "penstock/host/parallel.h"

namespace ps::resampling {
namespace {

using detail::ResampleWork;
using detail::SensorWork;

constexpr std::size_t grain = 16 * 1024;  // elements; fewer are not worth waking a thread for

// What a target time gives to a sample, as a share of its own gradient. Shares are f64, and rounded
// once where sums are f32.
struct Gift {
  std::int64_t target = 0;
  double share = 0;
};

// The gifts to the samples of one episode.
class Gifts {
 public:
  template <class T>
  void collect(const ResampleWork& work, std::int64_t episode, const Episode& samples) {
    const Times<T> times = times_of<T>(work.sensor[0], episode, samples);
    const T* at = static_cast<const T*>(work.at) + episode * work.at_episode;
    const bool line = work.outside == Outside::extrapolate;
    narrow_ = size_of(work.type) == 2;
    picks_.clear();
    begin_.assign(static_cast<std::size_t>(samples.count) + 2, 0);
    std::int64_t hint = 0;
    for (std::int64_t target = 0; target < work.targets; ++target) {
      const T t = at[target * work.at_target];
      const Located located = locate(times, t, hint, line);
      hint = located.earlier;
      picks_.push_back(pick(located, times, t, Interpolation::linear, work.outside));
      each(picks_.back(), [&](std::int64_t sample, double) { ++begin_[sample + 2]; });
    }
    for (std::size_t i = 2; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
    gifts_.resize(begin_.back());
    // begin_[i + 1] moves from where sample i's gifts begin to where they end.
    for (std::int64_t target = 0; target < work.targets; ++target) {
      each(picks_[target], [&](std::int64_t sample, double share) {
        gifts_[begin_[sample + 1]++] = {target, share};
      });
    }
  }

  std::span<const Gift> to(std::int64_t sample) const {
    return {gifts_.data() + begin_[sample], begin_[sample + 1] - begin_[sample]};
  }

 private:
  // A share of nothing is no gift, also where it is nothing in f32 alone, which 16-bit types are
  // computed in.
  template <class Use>
  void each(const Pick& pick, const Use& use) const {
    const auto give = [&](std::int64_t sample, double share) {
      if (narrow_ ? static_cast<float>(share) != 0 : share != 0) use(sample, share);
    };
    if (pick.action == Action::copy) give(pick.first, 1.0);
    if (pick.action == Action::blend) {
      give(pick.first, 1 - pick.weight);
      give(pick.second, pick.weight);
    }
  }

  bool narrow_ = false;
  std::vector<Pick> picks_;
  std::vector<std::size_t> begin_;
  std::vector<Gift> gifts_;
};

template <class Element>
void scatter(void* to, std::int64_t stride, const void* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<Element*>(to)[static_cast<std::int64_t>(i) * stride] =
        static_cast<const Element*>(from)[i];
  }
}

// The row of one sample: the sum of `gifts`.
void write_row(const ResampleWork& work, const RowKernels& rows, std::int64_t episode,
               std::int64_t sample, std::span<const Gift> gifts) {
  constexpr std::int64_t most = 512;
  const SensorWork& sensor = work.sensor[0];
  const auto size = static_cast<std::int64_t>(size_of(work.type));
  auto* row = static_cast<std::byte*>(const_cast<void*>(sensor.values)) +
              (episode * sensor.value_episode + sample * sensor.value_sample) * size;
  const auto gradient = [&](std::int64_t target, std::int64_t column) {
    return static_cast<const std::byte*>(work.out) +
           (episode * work.out_episode + target * work.out_target + column) * size;
  };
  const std::int64_t columns = work.segments == 0 ? 0 : work.segment[0].count;
  for (std::int64_t column = 0; column < columns; column += most) {
    const auto count = static_cast<std::size_t>(std::min(most, columns - column));
    double sums[most];  // or half as many bytes of f32
    std::fill_n(sums, count, 0.0);
    for (const Gift& gift : gifts) {
      rows.add(sums, gradient(gift.target, column), gift.share, count);
    }
    std::byte* to = row + column * sensor.value_column * size;
    if (sensor.value_column == 1) {
      rows.round(to, sums, count);
      continue;
    }
    double rounded[most];
    rows.round(rounded, sums, count);
    if (size == 2) scatter<std::uint16_t>(to, sensor.value_column, rounded, count);
    if (size == 4) scatter<std::uint32_t>(to, sensor.value_column, rounded, count);
    if (size == 8) scatter<std::uint64_t>(to, sensor.value_column, rounded, count);
  }
}

// An episode and the rows [begin, end) that are written with it: those of no episode are zeros.
struct Share {
  Episode samples;
  std::int64_t begin = 0, end = 0;
};

// Every row once, also where offsets are wrong: an episode that begins before another's end is then
// an empty one.
std::vector<Share> shares_of(const ResampleWork& work) {
  const SensorWork& sensor = work.sensor[0];
  std::vector<Share> shares;
  std::int64_t done = 0;
  for (std::int64_t episode = 0; episode < work.episodes; ++episode) {
    Share share{episode_of(sensor, episode), 0, sensor.samples};
    if (sensor.offsets != nullptr) {
      if (share.samples.begin < done) share.samples = {done, 0, true};
      share.begin = done;
      done = share.end = share.samples.begin + share.samples.count;
    }
    shares.push_back(share);
  }
  if (sensor.offsets != nullptr) {
    shares.push_back({{sensor.samples, 0, false}, done, sensor.samples});
  }
  return shares;
}

void run_gradient(const ResampleWork& work) {
  const RowKernels rows = row_kernels(work.type);
  const std::int64_t columns = work.segments == 0 ? 0 : work.segment[0].count;
  const std::size_t each =
      grain / static_cast<std::size_t>(std::clamp<std::int64_t>(columns, 1, grain));
  const std::vector<Share> shares = shares_of(work);
  parallel_ranges(shares.size(), 1, [&](std::size_t begin, std::size_t end) {
    Gifts gifts;
    for (std::size_t i = begin; i < end; ++i) {
      const Share& share = shares[i];
      const auto episode = static_cast<std::int64_t>(i);
      if (share.samples.count > 0) {
        with_time(work.time_type,
                  [&](auto time) { gifts.collect<decltype(time)>(work, episode, share.samples); });
      }
      parallel_ranges(static_cast<std::size_t>(share.end - share.begin), each,
                      [&](std::size_t first, std::size_t last) {
                        for (std::size_t k = first; k < last; ++k) {
                          const std::int64_t sample = share.begin + static_cast<std::int64_t>(k);
                          const std::int64_t own = sample - share.samples.begin;
                          const bool inside = own >= 0 && own < share.samples.count;
                          write_row(work, rows, episode, sample,
                                    inside ? gifts.to(own) : std::span<const Gift>());
                        }
                      });
    }
  });
}

}  // namespace
}  // namespace ps::resampling

namespace ps::detail {

void resample_gradient_cpu(const ResampleWork& work, const Stream& stream) {
  stream.call([work] { resampling::run_gradient(work); });
}

}  // namespace ps::detail
