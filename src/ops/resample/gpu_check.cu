// Looks for lengths, times and target times that break their contract; the first in order wins.
#include "ops/launch.h"
#include "ops/resample/gpu.cuh"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"

namespace ps::resampling {
namespace {

using detail::ResampleChecks;
using detail::ResampleFault;
using detail::ResampleWork;
using Kind = ResampleFault::Kind;

constexpr unsigned check_threads = 256;

// Faults as one number each, so that the first is the smallest. An episode's come in this order:
// its length, its times, the times wanted of it.
struct FaultKey {
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  __host__ __device__ static std::uint64_t of(std::uint64_t stage, std::int64_t index, Kind kind) {
    return stage << 62 | static_cast<std::uint64_t>(index) << 3 | static_cast<std::uint64_t>(kind);
  }
  static Kind kind(std::uint64_t key) { return static_cast<Kind>(key & 7U); }
  static std::int64_t index(std::uint64_t key) {
    return static_cast<std::int64_t>((key & ((std::uint64_t{1} << 62) - 1)) >> 3);
  }
};

// A block, an episode. keys[b]: its first fault.
template <class Time>
__global__ void __launch_bounds__(check_threads)
    check_kernel(const __grid_constant__ ResampleWork work,
                 const __grid_constant__ detail::SensorWork sensor, ResampleChecks checks,
                 unsigned long long* keys) {
  __shared__ unsigned long long first;
  if (threadIdx.x == 0) first = FaultKey::none;
  __syncthreads();
  const std::int64_t b = blockIdx.x;
  bool wrong = false;
  const DeviceEpisode episode = device_episode(sensor, b, wrong);
  const Times<Time> times = device_times<Time>(sensor, b, episode);
  std::uint64_t mine = FaultKey::none;
  const auto found = [&](std::uint64_t key) { mine = key < mine ? key : mine; };
  if (checks.times) {
    if (wrong) found(FaultKey::of(0, 0, Kind::length));
    for (std::int64_t i = threadIdx.x; i < times.count; i += check_threads) {
      const Time t = times[i];
      if (t != t) {
        found(FaultKey::of(1, i, Kind::nan));
      } else if (i > 0 && t < times[i - 1]) {
        found(FaultKey::of(1, i, Kind::unsorted));
      }
    }
  }
  if (checks.outside && times.count > 0) {
    const Time earliest = times[0], latest = times[times.count - 1];
    for (std::int64_t i = threadIdx.x; i < work.targets; i += check_threads) {
      const Time t = static_cast<const Time*>(work.at)[b * work.at_episode + i * work.at_target];
      if (t < earliest || t > latest) found(FaultKey::of(2, i, Kind::outside));
    }
  }
  if (mine != FaultKey::none) atomicMin(&first, static_cast<unsigned long long>(mine));
  __syncthreads();
  if (threadIdx.x == 0) keys[b] = first;
}

template <class Time>
cudaError_t run(const ResampleWork& work, unsigned which, ResampleChecks checks,
                unsigned long long* keys, cudaStream_t stream) {
  check_kernel<Time><<<static_cast<unsigned>(work.episodes), check_threads, 0, stream>>>(
      work, work.sensor[which], checks, keys);
  return cudaGetLastError();
}

}  // namespace
}  // namespace ps::resampling

namespace ps::detail {

ResampleFault check_resample_gpu(const ResampleWork& work, ResampleChecks checks,
                                 const Stream& stream) {
  using namespace resampling;
  const auto episodes = static_cast<std::size_t>(work.episodes);
  const DeviceBuffer keys(stream.device(), episodes * sizeof(std::uint64_t));
  const PinnedBuffer host(stream.device(), keys.view().bytes);
  auto* const on_device = keys.view().as<unsigned long long>();
  for (unsigned i = 0; i < work.sensors; ++i) {
    launch_on(stream, "launching the check of resample", [&] {
      const cudaStream_t on = cuda_stream(stream);
      if (work.time_type == DType::f64) return run<double>(work, i, checks, on_device, on);
      if (work.time_type == DType::i64) return run<std::int64_t>(work, i, checks, on_device, on);
      return run<float>(work, i, checks, on_device, on);
    });
    copy(host.view(), keys.view(), stream);
    stream.synchronize();
    for (std::size_t b = 0; b < episodes; ++b) {
      const std::uint64_t key = host.view().as<std::uint64_t>()[b];
      if (key == FaultKey::none) continue;
      return {.kind = FaultKey::kind(key),
              .sensor = i,
              .episode = static_cast<std::int64_t>(b),
              .index = FaultKey::index(key)};
    }
  }
  return {};
}

}  // namespace ps::detail
