// The CPU's transform: all cores, each with ranges of its own, in vectors where the CPU has them.
// The instruction set is chosen at run time by a plain branch, as iterate does and for the same
// reason.
#include "ops/transform/cpu.h"

#include <cstring>

#include "base/cache_size.h"
#include "penstock/base/units.h"
#include "penstock/host/parallel.h"

namespace ps::detail {
namespace {

constexpr std::size_t grain = 16 * 1024;  // elements; fewer are not worth waking a thread for

void copy_range(const TransformWork& work, std::size_t begin, std::size_t end) {
  const std::size_t element = size_of(work.in_type);
  std::memmove(static_cast<std::byte*>(work.out) + begin * element,
               static_cast<const std::byte*>(work.in[0]) + begin * element,
               (end - begin) * element);
}

void run(const TransformWork& work) {
  static const std::size_t reported = last_level_cache();
  const std::size_t cache = reported > 0 ? reported : 32 * MiB;
  static const CpuRange fast = transform_avx2();
  const CpuRange range = fast != nullptr ? fast : transform_baseline;
  const std::size_t bytes =
      work.elements * (work.inputs * size_of(work.in_type) + size_of(work.out_type));
  const Caching caching = bytes > cache ? Caching::pass : Caching::keep;
  const bool copies = work.function == Function::cast && work.in_type == work.out_type;
  parallel_ranges(work.elements, grain, [&](std::size_t begin, std::size_t end) {
    if (copies) {
      copy_range(work, begin, end);
    } else {
      range(work, begin, end, caching);
    }
  });
}

}  // namespace

// Correct everywhere; fast nowhere.
void transform_baseline(const TransformWork& work, std::size_t begin, std::size_t end,
                        Caching /*caching*/) {
  elementwise::dispatch<CpuTypes, elementwise::Precision::full>(
      work, [&]<class F, class Out, class... In>(const F& function, Out* out, const In*... in) {
        if constexpr (requires { typename F::computes_in; }) {
          for (std::size_t i = begin; i < end; ++i) narrow(function(widen(in[i])...), out[i]);
        }
      });
}

void transform_cpu(const TransformWork& work, const Stream& stream) {
  stream.call([work] { run(work); });
}

}  // namespace ps::detail
