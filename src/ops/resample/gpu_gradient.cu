// The GPU's gradient of resample. A block has one sample: its threads look through the episode's
// targets in order, and keep those that the sample had a part in; then each sums some columns over
// them, in that order. Targets that go up or down are looked at where the sample may be, others
// all.
#include "host/cuda/backend.h"
#include "ops/resample/element.cuh"
#include "ops/resample/gpu.cuh"
#include "penstock/host/cuda.h"

namespace ps::resampling {
namespace {

using detail::ResampleWork;

constexpr unsigned gradient_threads = 128;

// What a target gives to the sample `own`, as a share of its own gradient; 0: nothing.
template <class Time>
__device__ inline double share_of(const ResampleWork& work, const Times<Time>& times,
                                  std::int64_t b, unsigned t, std::int64_t own) {
  const Time wanted = static_cast<const Time*>(work.at)[b * work.at_episode + t * work.at_target];
  // Far from the sample's neighbours it gives nothing, and needs no search.
  const bool line = work.outside == Outside::extrapolate;
  const bool first = own < (line ? 2 : 1), last = own + (line ? 2 : 1) >= times.count;
  if (!first && wanted < times[own - 1]) return 0;
  if (!last && wanted >= times[own + 1]) return 0;
  const Located located = locate(times, wanted, own, line);
  const Pick picked = pick(located, times, wanted, Interpolation::linear, work.outside);
  if (picked.action == Action::copy) return picked.first == own ? 1 : 0;
  if (picked.action != Action::blend) return 0;
  if (picked.first == own) return 1 - picked.weight;
  return picked.second == own ? picked.weight : 0;
}

template <class Element, class Time>
__global__ void __launch_bounds__(gradient_threads, 4)
    gradient_kernel(const __grid_constant__ ResampleWork work,
                    const __grid_constant__ detail::SensorWork sensor, unsigned columns) {
  using A = Arithmetic<Element>;
  using Number = NumberOf<Element>;
  struct Gift {
    unsigned target;
    Number share;
  };
  __shared__ Gift gifts[gradient_threads];
  __shared__ unsigned of_warp[gradient_threads / 32];
  __shared__ std::int64_t found_episode;

  // Which episode the row belongs to: with offsets, whoever begins last at or before it.
  std::int64_t b = sensor.offsets != nullptr ? 0 : blockIdx.x / sensor.samples;
  std::int64_t row = sensor.offsets != nullptr ? blockIdx.x : blockIdx.x - b * sensor.samples;
  if (sensor.offsets != nullptr) {
    if (threadIdx.x == 0) {
      found_episode = last_of(work.episodes, 0, [&](std::int64_t i) {
        return device_length(sensor, sensor.offsets, i) <= row;
      });
    }
    __syncthreads();
    b = found_episode;
  }
  bool wrong = false;
  const DeviceEpisode episode = b < 0 ? DeviceEpisode{} : device_episode(sensor, b, wrong);
  const std::int64_t own = row - episode.begin;
  const bool inside = own >= 0 && own < episode.count;
  const Times<Time> times = device_times<Time>(sensor, b < 0 ? 0 : b, episode);
  auto* const to = static_cast<Element*>(const_cast<void*>(sensor.values)) +
                   (sensor.offsets != nullptr ? 0 : b * sensor.value_episode) +
                   row * sensor.value_sample;
  const auto* const gradient = static_cast<const Element*>(work.out) + b * work.out_episode;
  const auto targets = static_cast<unsigned>(inside ? work.targets : 0);

  for (unsigned begin = 0; begin < columns; begin += gradient_threads) {
    const unsigned column = begin + threadIdx.x;
    Number sum = 0;
    for (unsigned t0 = 0; t0 < targets; t0 += gradient_threads) {
      const unsigned t = t0 + threadIdx.x;
      const double share = t < targets ? share_of(work, times, b, t, own) : 0;
      const unsigned votes = __ballot_sync(0xFFFFFFFF, share != 0);
      const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
      if (lane == 0) of_warp[warp] = static_cast<unsigned>(__popc(votes));
      __syncthreads();
      unsigned place = static_cast<unsigned>(__popc(votes & ((1U << lane) - 1))), count = 0;
      for (unsigned w = 0; w < gradient_threads / 32; ++w) {
        if (w < warp) place += of_warp[w];
        count += of_warp[w];
      }
      if (share != 0) gifts[place] = {t, static_cast<Number>(share)};
      __syncthreads();
      if (column < columns) {
        for (unsigned i = 0; i < count; ++i) {
          const Gift gift = gifts[i];
          sum = fused(gift.share, A::widen(gradient[gift.target * work.out_target + column]), sum);
        }
      }
      __syncthreads();
    }
    if (column < columns) to[column * sensor.value_column] = A::narrow(sum);
  }
}

template <class Element, class Time>
cudaError_t run(const ResampleWork& work, cudaStream_t stream) {
  const detail::SensorWork& sensor = work.sensor[0];
  const std::int64_t rows =
      sensor.offsets != nullptr ? sensor.samples : work.episodes * sensor.samples;
  if (rows == 0) return cudaSuccess;
  gradient_kernel<Element, Time><<<static_cast<unsigned>(rows), gradient_threads, 0, stream>>>(
      work, sensor, static_cast<unsigned>(work.segments == 0 ? 0 : work.segment[0].count));
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
  auto& backend = static_cast<cuda::Backend&>(stream.device().backend());
  const cuda::Guard current(backend);
  const cudaStream_t on = cuda_stream(stream);
  const cudaError_t launched = work.time_type == DType::f64 ? resampling::run<double>(work, on)
                               : work.time_type == DType::i64
                                   ? resampling::run<std::int64_t>(work, on)
                                   : resampling::run<float>(work, on);
  backend.check(launched, "launching the gradient of resample");
}

}  // namespace ps::detail
