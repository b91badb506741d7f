#include "gemm/support/rungs.h"

#include <fmt/format.h>

#include <string>

#include "gemm/support/matrices.h"
#include "gemm/support/tensor_ceiling.h"
#include "penstock/base/units.h"
#include "penstock/host/cuda.h"
#include "support/interleaved.h"

namespace gemm {
namespace {

// Quick or not: less would not fill the GPU.
constexpr Size traced_size{4096, 4096, 4096};

std::vector<Product>& registered() {
  static std::vector<Product> all;
  return all;
}

// What all rungs share: the matrices of each size, and the ceiling.
class Ladder {
 public:
  explicit Ladder(ladder::Context& context) : stream_(context.device()) {
    for (const unsigned extent : context.quick() ? std::vector{512u} : std::vector{4096u, 8192u}) {
      matrices_.emplace_back(stream_, Size{extent, extent, extent});
    }
    ceiling_ = measure_tensor_ceiling(context, stream_, matrices_.back().size());
  }

  const ps::Stream& stream() const { return stream_; }
  const std::vector<Matrices>& matrices() const { return matrices_; }
  double ceiling() const { return ceiling_; }

 private:
  ps::Stream stream_;
  std::vector<Matrices> matrices_;
  double ceiling_ = 0;  // 0: not measured
};

// One run alone where that is long enough to be steady.
double median_seconds(const ps::Stream& stream, const ladder::Context& context,
                      const ladder::Enqueue& enqueue) {
  constexpr double long_enough = 0.05;
  const double once = ladder::interleaved_medians(stream, {enqueue}, {.turns = 1, .warm_up = 0})[0];
  if (once > long_enough) return once;
  return ladder::interleaved_medians(stream, {enqueue}, {.stop = context.stop()})[0];
}

}  // namespace

const std::vector<Product>& products() { return registered(); }

detail::Registration::Registration(std::string_view path, std::string_view name, Run run,
                                   Traced (*traced)()) {
  registered().push_back({name, run, path.find("_sm90") != std::string_view::npos, traced});
}

std::vector<ladder::Row> measure(ladder::Context& context, Run run, const ladder::KernelUse& use,
                                 const Traced& traced) {
  auto& all = context.shared<Ladder>();
  const cudaStream_t stream = ps::cuda_stream(all.stream());
  std::vector<ladder::Row> rows;
  for (const Matrices& matrices : all.matrices()) {
    matrices.poison(0);
    run(matrices.problem(0), stream);
    const Error error = matrices.check(0);
    const std::size_t number =
        context.profile(all.stream(), [&] { run(matrices.problem(0), stream); });
    const double seconds = median_seconds(
        all.stream(), context, [&](std::size_t turn) { run(matrices.problem(turn), stream); });
    const Size& size = matrices.size();
    ladder::Row row{.label = fmt::format("{} x {} x {}", size.m, size.n, size.k),
                    .work = fmt::format("gemm {}", size.m),
                    .seconds = seconds,
                    .flops = size.flops(),
                    .use = use,
                    .number = number,
                    .note = fmt::format("{:.1f} TFLOP/s; {} elements checked",
                                        size.flops() / seconds * 1e-12, error.checked)};
    if (all.ceiling() > 0) row.efficiency = size.flops() / seconds / all.ceiling();
    rows.push_back(std::move(row));
  }
  if (!context.trace().empty()) {
    const Matrices matrices(all.stream(), traced_size, 1);
    const auto launch = [&](const ps::kit::TraceBuffer<true>& buffer) {
      traced.run(matrices.problem(0), stream, buffer);
    };
    ladder::write_kernel_page(context.trace(),
                              {.name = "gemm_" + traced.name,
                               .roles = traced.roles,
                               .room = traced.room,
                               .launch = launch},
                              all.stream());
  }
  return rows;
}

}  // namespace gemm
