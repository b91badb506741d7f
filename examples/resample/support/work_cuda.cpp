#include "resample/support/work.h"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/cuda.h"
#include "support/check_cuda.h"
#include "support/kernel_arguments.h"

namespace ladder::resample {
namespace {

// Numbers of rows are of 32 bits, and kernels add to them.
constexpr std::int64_t most_rows = std::int64_t{1} << 30;

void check_shape(std::string_view argument, const ps::TensorView& view,
                 const std::vector<std::int64_t>& wanted) {
  if (std::vector(view.shape().begin(), view.shape().end()) == wanted) return;
  throw ps::InvalidArgument(argument, fmt::format("the shape ({})", fmt::join(wanted, ", ")),
                            view.describe());
}

Work checked(const Options& options, const ps::Device& device) {
  const ps::DType type = options.values.dtype();
  if (type != ps::DType::bf16 && type != ps::DType::f32) {
    throw ps::InvalidArgument("values", "elements of type bf16 or f32", options.values.describe());
  }
  check_view("values", options.values, type, device);
  check_view("times", options.times, ps::DType::f32, device);
  check_view("at", options.at, ps::DType::f32, device);
  check_view("out", options.out, type, device);
  if (options.values.rank() != 3) {
    throw ps::InvalidArgument("values", "3 dimensions", options.values.describe());
  }
  if (options.at.rank() != 2) {
    throw ps::InvalidArgument("at", "2 dimensions", options.at.describe());
  }
  const std::int64_t episodes = options.values.extent(0), samples = options.values.extent(1),
                     columns = options.values.extent(2), targets = options.at.extent(1);
  check_shape("times", options.times, {episodes, samples});
  check_shape("at", options.at, {episodes, targets});
  check_shape("out", options.out, {episodes, targets, columns});
  if (options.lengths.data() != nullptr) {
    check_view("lengths", options.lengths, ps::DType::i32, device);
    check_shape("lengths", options.lengths, {episodes});
  }
  const auto check_rows = [&](std::string_view argument, std::int64_t rows, std::int64_t extent) {
    if (rows < most_rows && extent < most_rows) return;
    throw ps::InvalidArgument(argument, "fewer than 2^30 rows and columns",
                              fmt::format("{} and {}", rows, extent));
  };
  check_rows("values", episodes * samples, columns);
  check_rows("at", episodes * targets, targets);
  check_apart("out", options.out, "values", options.values);
  check_apart("out", options.out, "times", options.times);
  check_apart("out", options.out, "lengths", options.lengths);
  check_apart("out", options.out, "at", options.at);
  return {.values = options.values.data(),
          .times = static_cast<const float*>(options.times.data()),
          .lengths = static_cast<const std::int32_t*>(options.lengths.data()),
          .at = static_cast<const float*>(options.at.data()),
          .out = options.out.data(),
          .type = type,
          .episodes = static_cast<unsigned>(episodes),
          .samples = static_cast<unsigned>(samples),
          .targets = static_cast<unsigned>(targets),
          .columns = static_cast<unsigned>(columns)};
}

}  // namespace

std::string why_not(const Kernel& kernel, const ps::Device& device) {
  return why_no_kernel(device, kernel.hopper);
}

void enqueue(const Kernel& kernel, const Options& options, const ps::Stream& stream) {
  const ps::Device device = stream.device();
  if (const std::string why = why_not(kernel, device); !why.empty()) {
    throw ps::Unsupported(fmt::format("the kernel '{}': {}", kernel.label, why));
  }
  const Work work = checked(options, device);
  if (options.out.elements() == 0) return;
  check(cudaSetDevice(device.index()), "cudaSetDevice");
  kernel.launch.of(work.type)(work, stream);
}

}  // namespace ladder::resample
