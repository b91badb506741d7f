#include <fmt/format.h>

#include "gemm/support/tensor_ceiling.h"
#include "penstock/host/cuda.h"
#include "support/interleaved.h"

namespace gemm {

double measure_tensor_ceiling(ladder::Context& context, const ps::Stream& stream,
                              const Size& size) {
  if (context.device().capabilities().compute_major != 9) return 0;  // wgmma is Hopper's alone
  const std::vector<TensorRounds> lengths = tensor_rounds(size);
  std::vector<ladder::Enqueue> work;
  for (const TensorRounds& length : lengths) {
    work.emplace_back([&stream, length](std::size_t) {
      enqueue_tensor_work(length.rounds, ps::cuda_stream(stream));
    });
  }
  const double ceiling =
      tensor_ceiling(lengths, ladder::interleaved_medians(stream, work, {.stop = context.stop()}));
  context.add_fact({"tensor_flops",
                    fmt::format("{:.0f} TFLOP/s of wgmma without loads", ceiling * 1e-12),
                    ceiling});
  return ceiling;
}

}  // namespace gemm
