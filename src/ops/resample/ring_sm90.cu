// Blocks that stay, for Hopper.
#include "ops/resample/launch.cuh"
#include "ops/resample/ring.cuh"

namespace ps::resampling {
namespace {

template <class Element, class Time>
cudaError_t run_ring(const ResampleWork& work, const WholeWork& whole, int multiprocessors,
                     cudaStream_t stream) {
  const RingWork ring{.whole = whole,
                      .by_targets = kit::Divisor(whole.targets),
                      .all = static_cast<std::uint64_t>(work.episodes * work.targets)};
  return launch_ring<RingConfig<Element, Time>>(ring, multiprocessors, stream);
}

template <class Time>
cudaError_t run_ring(const ResampleWork& work, const WholeWork& whole, int multiprocessors,
                     cudaStream_t stream) {
  const DType type = whole.mode == Interpolation::linear ? work.type : DType::u8;
  switch (type) {
    case DType::f64:
      return run_ring<double, Time>(work, whole, multiprocessors, stream);
    case DType::f32:
      return run_ring<float, Time>(work, whole, multiprocessors, stream);
    case DType::f16:
      return run_ring<__half, Time>(work, whole, multiprocessors, stream);
    case DType::bf16:
      return run_ring<__nv_bfloat16, Time>(work, whole, multiprocessors, stream);
    default:
      return run_ring<Moved, Time>(work, whole, multiprocessors, stream);
  }
}

}  // namespace

std::optional<cudaError_t> resample_ring(const ResampleWork& work, int multiprocessors,
                                         cudaStream_t stream) {
  constexpr std::int64_t most_targets = std::numeric_limits<int>::max(), most_bytes = 1 << 20;
  const std::optional<Whole> whole = whole_of(work);
  if (!whole || whole->bytes != RingConfig<float, float>::bytes || whole->work.strip.vectors == 0 ||
      whole->work.strip.vectors * whole->bytes > most_bytes ||
      work.episodes > most_targets / work.targets) {
    return std::nullopt;
  }
  switch (work.time_type) {
    case DType::f64:
      return run_ring<double>(work, whole->work, multiprocessors, stream);
    case DType::i64:
      return run_ring<std::int64_t>(work, whole->work, multiprocessors, stream);
    default:
      return run_ring<float>(work, whole->work, multiprocessors, stream);
  }
}

}  // namespace ps::resampling
