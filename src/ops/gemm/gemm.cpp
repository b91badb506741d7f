#include "penstock/ops/gemm.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "ops/arguments.h"
#include "ops/gemm/choice.h"
#include "ops/gemm/tunable.h"
#include "ops/gemm/work.h"
#include "penstock/base/error.h"

namespace ps {
namespace detail {
namespace {

constexpr std::int64_t most_extent = (std::int64_t{1} << 31) - 1;
constexpr std::size_t row_alignment = 16;  // bytes, of tensor maps
constexpr std::int64_t row_multiple = 8;   // the same in elements

void check_matrix(const Named& matrix, std::string_view shape) {
  const TensorView& view = matrix.view;
  if (view.rank() != 2) throw_invalid(matrix.name(), std::string(shape), described(view));
  for (const std::int64_t extent : view.shape()) {
    if (extent <= most_extent) continue;
    throw_invalid(matrix.name(), "fewer than 2^31 rows and columns", described(view));
  }
  check_last_contiguous(matrix);
}

bool has_map(const void* data, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  constexpr std::int64_t most_stride = std::int64_t{1} << 39;  // elements of 2 bytes
  return reinterpret_cast<std::uintptr_t>(data) % row_alignment == 0 && rows > 0 && columns > 0 &&
         columns % row_multiple == 0 && stride >= columns && stride % row_multiple == 0 &&
         stride < most_stride;
}

GemmWork checked(const GemmOptions& options, const Device& device) {
  const Named a{"a", options.a}, b{"b", options.b}, out{"out", options.out};
  check_type(a, {DType::bf16, DType::f16});
  check_matrix(a, "shape (M, K)");
  check_same_type(b, a);
  check_matrix(b, "shape (N, K)");
  const std::int64_t m = a.view.extent(0), n = b.view.extent(0), k = a.view.extent(1);
  check_shape(b, {n, k}, "N, and K as in a");
  check_same_type(out, a);
  check_shape(out, {m, n}, "the rows of a, the rows of b");
  check_matrix(out, "shape (M, N)");
  for (const Named& each : {a, b, out}) check_memory(each, device);
  check_distinct_elements(out);
  check_apart(out, a);
  check_apart(out, b);
  return {.m = m,
          .n = n,
          .k = k,
          .type = a.view.dtype(),
          .a = a.view.data(),
          .b = b.view.data(),
          .out = out.view.data(),
          .a_row = stride_or(a.view, 0, a.view.extent(1)),
          .b_row = stride_or(b.view, 0, b.view.extent(1)),
          .out_row = stride_or(out.view, 0, out.view.extent(1))};
}

void check_kernel(GemmKernel kernel) {
  if (std::ranges::find(gemm_kernels(), kernel) != gemm_kernels().end()) return;
  throw_invalid("kernel", "best, portable or one of the sm90 kernels",
                std::to_string(static_cast<int>(kernel)));
}

// Throws if the call names a kernel that cannot run it.
void check_runs(const GemmWork& work, GemmKernel kernel, const Device& device) {
  require_compute(device, "gemm");
  const GemmShape* shape = find_gemm_shape(kernel);
  if (shape == nullptr) return;
  require_compute(device, "gemm",
                  {.major = 9,
                   .minor = 0,
                   .or_later = false,
                   .kernel = shape->name,
                   .instead = "use kernel portable or best"});
  if (gemm_fits_sm90(work)) return;
  throw_invalid("kernel",
                "best or portable for matrices that are not aligned: N and K that are not "
                "multiples of 8, or rows that do not begin at multiples of 16 bytes in ascending "
                "order",
                std::string(shape->name));
}

}  // namespace

bool gemm_fits_sm90(const GemmWork& work) {
  return has_map(work.a, work.m, work.k, work.a_row) &&
         has_map(work.b, work.n, work.k, work.b_row) &&
         has_map(work.out, work.m, work.n, work.out_row);
}

}  // namespace detail

std::span<const GemmKernel> gemm_kernels() {
  static constexpr auto all = [] {
    std::array<GemmKernel, 2 + detail::gemm_shapes.size()> kernels = {GemmKernel::best,
                                                                      GemmKernel::portable};
    std::ranges::transform(detail::gemm_shapes, kernels.begin() + 2, &detail::GemmShape::kernel);
    return kernels;
  }();
  return all;
}

std::string_view name(GemmKernel kernel) {
  if (kernel == GemmKernel::best) return "best";
  if (kernel == GemmKernel::portable) return "portable";
  const detail::GemmShape* shape = detail::find_gemm_shape(kernel);
  return shape == nullptr ? "unknown" : shape->name;
}

void gemm(const GemmOptions& options, const Stream& stream) {
  const Device device = stream.device();
  const detail::GemmWork work = detail::checked(options, device);
  detail::check_kernel(options.kernel);
  if (work.m == 0 || work.n == 0) return;
  if (device.kind() == DeviceKind::cpu) return detail::gemm_cpu(work, stream);
  detail::check_runs(work, options.kernel, device);
  detail::gemm_gpu(work, detail::gemm_kernel(work, options.kernel, device), stream);
}

}  // namespace ps
