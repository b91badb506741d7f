// The GPU's gradient of resample. A block has some rows of samples. Its threads look through the
// targets of their episode in order and write down what each gives to those samples; then each
// thread sums some elements over what its sample was given, in that order. Where there is too much
// to write down, samples go one by one, and what each is given in parts.
#include "ops/launch.h"
#include "ops/resample/element.cuh"
#include "ops/resample/gpu.cuh"
#include "penstock/host/cuda.h"

namespace ps::resampling {
namespace {

using detail::ResampleWork;

// Configuration.
constexpr unsigned gradient_threads = 128;
constexpr unsigned gradient_rows = 16;
constexpr unsigned gradient_gifts = 256;  // of a piece, at least as many as there are threads

// What a target gives to a sample of a piece and to the next, as shares of its own gradient.
template <class Number>
struct Gift {
  unsigned target;
  int sample;  // from the piece's first
  Number share, next;

  __device__ Number to(int own) const {
    return own == sample ? share : own == sample + 1 ? next : 0;
  }
};

// Some samples [begin, end) of an episode.
template <class Time>
struct Piece {
  std::int64_t b = 0;  // the episode
  Times<Time> times{};
  std::int64_t begin = 0, end = 0;
};

// Shared storage.
template <class Number>
struct GradientStorage {
  Gift<Number> gifts[gradient_gifts];
  unsigned first[gradient_rows], last[gradient_rows];  // of each sample's gifts; none: first > last
  unsigned of_warp[gradient_threads / 32];
  std::int64_t episode;
};

// What target t gives to the piece; nothing where both shares are 0.
template <class Number, class Time>
__device__ inline Gift<Number> gift_of(const ResampleWork& work, const Piece<Time>& piece,
                                       unsigned t) {
  const Time wanted =
      static_cast<const Time*>(work.at)[piece.b * work.at_episode + t * work.at_target];
  Gift<Number> gift{t, 0, 0, 0};
  // Far from the piece's neighbours it gives nothing, and needs no search.
  const bool line = work.outside == Outside::extrapolate;
  const int reach = line ? 2 : 1;
  if (piece.begin >= reach && wanted < piece.times[piece.begin - 1]) return gift;
  if (piece.end - 1 + reach < piece.times.count && wanted >= piece.times[piece.end]) return gift;
  const Located located = locate(piece.times, wanted, piece.begin, line);
  const Pick picked = pick(located, piece.times, wanted, Interpolation::linear, work.outside);
  if (picked.action != Action::copy && picked.action != Action::blend) return gift;
  const bool blends = picked.action == Action::blend;
  gift.sample = static_cast<int>(picked.first - piece.begin);
  const auto inside = [&](std::int64_t i) { return i >= piece.begin && i < piece.end; };
  if (inside(picked.first)) gift.share = static_cast<Number>(blends ? 1 - picked.weight : 1);
  if (blends && inside(picked.second)) gift.next = static_cast<Number>(picked.weight);
  return gift;
}

// Writes down what targets from `from` on give, until there are no more or no room for those of
// another look. Returns how many gifts there are; `from` moves on.
template <class Number, class Time>
__device__ inline unsigned write_down(const ResampleWork& work, const Piece<Time>& piece,
                                      GradientStorage<Number>& shared, unsigned& from) {
  const auto targets = static_cast<unsigned>(work.targets);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned count = 0;
  for (; from < targets && count + gradient_threads <= gradient_gifts; from += gradient_threads) {
    const unsigned t = from + threadIdx.x;
    Gift<Number> gift{};
    if (t < targets) gift = gift_of<Number>(work, piece, t);
    const bool gives = gift.share != 0 || gift.next != 0;
    const unsigned votes = __ballot_sync(0xFFFFFFFF, gives);
    if (lane == 0) shared.of_warp[warp] = static_cast<unsigned>(__popc(votes));
    __syncthreads();
    unsigned place = count + static_cast<unsigned>(__popc(votes & ((1U << lane) - 1)));
    for (unsigned w = 0; w < gradient_threads / 32; ++w) {
      if (w < warp) place += shared.of_warp[w];
      count += shared.of_warp[w];
    }
    if (gives) shared.gifts[place] = gift;
    __syncthreads();
  }
  return count;
}

// The sum of one element over gifts [first, last].
template <class Element>
__device__ inline NumberOf<Element> add_gifts(NumberOf<Element> sum, const ResampleWork& work,
                                              const Gift<NumberOf<Element>>* gifts, unsigned first,
                                              unsigned last, int own, const Element* gradient) {
  for (unsigned i = first; i <= last; ++i) {
    const auto share = gifts[i].to(own);
    if (share == 0) continue;
    const Element given = gradient[gifts[i].target * work.out_target];
    sum = fused(share, Arithmetic<Element>::widen(given), sum);
  }
  return sum;
}

// The rows of a piece, from what is written down of it whole.
template <class Element, class Time>
__device__ inline void sum_piece(const ResampleWork& work, const detail::SensorWork& sensor,
                                 const Piece<Time>& piece,
                                 GradientStorage<NumberOf<Element>>& shared, unsigned count,
                                 unsigned columns, Element* to) {
  const auto rows = static_cast<unsigned>(piece.end - piece.begin);
  if (threadIdx.x < rows) {
    const auto own = static_cast<int>(threadIdx.x);
    unsigned first = gradient_gifts, last = 0;
    for (unsigned i = 0; i < count; ++i) {
      if (shared.gifts[i].to(own) == 0) continue;
      first = min(first, i);
      last = i;
    }
    shared.first[threadIdx.x] = first;
    shared.last[threadIdx.x] = last;
  }
  __syncthreads();
  const auto* const gradient = static_cast<const Element*>(work.out) + piece.b * work.out_episode;
  for (unsigned row = 0; row < rows; ++row) {
    for (unsigned column = threadIdx.x; column < columns; column += gradient_threads) {
      const auto sum =
          add_gifts<Element>(0, work, shared.gifts, shared.first[row], shared.last[row],
                             static_cast<int>(row), gradient + column);
      to[row * sensor.value_sample + column * sensor.value_column] =
          Arithmetic<Element>::narrow(sum);
    }
  }
  __syncthreads();
}

// The row of a piece of one sample, whatever it is given.
template <class Element, class Time>
__device__ inline void sum_sample(const ResampleWork& work, const detail::SensorWork& sensor,
                                  const Piece<Time>& piece,
                                  GradientStorage<NumberOf<Element>>& shared, unsigned columns,
                                  Element* to) {
  using Number = NumberOf<Element>;
  const auto* const gradient = static_cast<const Element*>(work.out) + piece.b * work.out_episode;
  for (unsigned begin = 0; begin < columns; begin += gradient_threads) {
    const unsigned column = begin + threadIdx.x;
    Number sum = 0;
    for (unsigned from = 0; from < static_cast<unsigned>(work.targets);) {
      const unsigned count = write_down<Number>(work, piece, shared, from);
      if (column < columns && count > 0) {
        sum = add_gifts<Element>(sum, work, shared.gifts, 0, count - 1, 0, gradient + column);
      }
      __syncthreads();
    }
    if (column < columns) {
      to[column * sensor.value_column] = Arithmetic<Element>::narrow(sum);
    }
  }
}

// `rows`: of all samples.
template <class Element, class Time>
__global__ void __launch_bounds__(gradient_threads, 4)
    gradient_kernel(const __grid_constant__ ResampleWork work,
                    const __grid_constant__ detail::SensorWork sensor, unsigned columns,
                    std::int64_t rows) {
  using Number = NumberOf<Element>;
  __shared__ GradientStorage<Number> shared;
  auto* const values = static_cast<Element*>(const_cast<void*>(sensor.values));
  const std::int64_t until = min(rows, (std::int64_t{blockIdx.x} + 1) * gradient_rows);

  for (std::int64_t row = std::int64_t{blockIdx.x} * gradient_rows; row < until;) {
    // Which episode the row belongs to: with offsets, whoever begins last at or before it.
    Piece<Time> piece;
    std::int64_t begin = 0;  // of the episode, in rows
    if (sensor.offsets != nullptr) {
      if (threadIdx.x == 0) {
        shared.episode = work.episodes == 0 ? -1 : last_of(work.episodes, 0, [&](std::int64_t i) {
          return device_length(sensor, sensor.offsets, i) <= row;
        });
      }
      __syncthreads();
      piece.b = shared.episode;
    } else {
      piece.b = row / sensor.samples;
      begin = piece.b * sensor.samples;
    }
    bool wrong = false;
    const DeviceEpisode episode =
        piece.b < 0 ? DeviceEpisode{} : device_episode(sensor, piece.b, wrong);
    if (sensor.offsets != nullptr) begin = episode.begin;
    const std::int64_t own = row - begin;
    const bool inside = own >= 0 && own < episode.count;
    std::int64_t end = row + 1;
    if (inside) end = min(until, begin + episode.count);
    Element* const to = sensor.offsets != nullptr
                            ? values + row * sensor.value_sample
                            : values + piece.b * sensor.value_episode + own * sensor.value_sample;

    if (!inside) {
      for (unsigned column = threadIdx.x; column < columns; column += gradient_threads) {
        to[column * sensor.value_column] = Arithmetic<Element>::narrow(0);
      }
    } else {
      piece.times = device_times<Time>(sensor, piece.b, episode);
      piece.begin = own;
      piece.end = own + end - row;
      unsigned from = 0;
      const unsigned count = write_down<Number>(work, piece, shared, from);
      if (from >= static_cast<unsigned>(work.targets)) {
        sum_piece<Element>(work, sensor, piece, shared, count, columns, to);
      } else {
        for (Piece<Time> one = piece; one.begin < piece.end; ++one.begin) {
          one.end = one.begin + 1;
          sum_sample<Element>(work, sensor, one, shared, columns,
                              to + (one.begin - piece.begin) * sensor.value_sample);
        }
      }
    }
    row = end;
    __syncthreads();
  }
}

template <class Element, class Time>
cudaError_t run(const ResampleWork& work, cudaStream_t stream) {
  const detail::SensorWork& sensor = work.sensor[0];
  const std::int64_t rows =
      sensor.offsets != nullptr ? sensor.samples : work.episodes * sensor.samples;
  if (rows == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((rows + gradient_rows - 1) / gradient_rows);
  const auto columns = static_cast<unsigned>(work.segments == 0 ? 0 : work.segment[0].count);
  gradient_kernel<Element, Time>
      <<<blocks, gradient_threads, 0, stream>>>(work, sensor, columns, rows);
  return cudaGetLastError();
}

template <class Time>
cudaError_t run(const ResampleWork& work, cudaStream_t stream) {
  switch (work.type) {
    case DType::f64:
      return run<double, Time>(work, stream);
    case DType::f16:
      return run<__half, Time>(work, stream);
    case DType::bf16:
      return run<__nv_bfloat16, Time>(work, stream);
    default:
      return run<float, Time>(work, stream);
  }
}

}  // namespace
}  // namespace ps::resampling

namespace ps::detail {

void resample_gradient_gpu(const ResampleWork& work, const Stream& stream) {
  launch_on(stream, "launching the gradient of resample", [&] {
    const cudaStream_t on = cuda_stream(stream);
    if (work.time_type == DType::f64) return resampling::run<double>(work, on);
    if (work.time_type == DType::i64) return resampling::run<std::int64_t>(work, on);
    return resampling::run<float>(work, on);
  });
}

}  // namespace ps::detail
