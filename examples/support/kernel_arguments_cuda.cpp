#include <fmt/format.h>

#include <cstdint>

#include "penstock/base/error.h"
#include "support/check_cuda.h"
#include "support/kernel_arguments.h"

namespace ladder {
namespace {

// Not through Device::capabilities(), which asks for much more and takes its time.
int compute_capability(const ps::Device& device) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index()),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index()),
        "cudaDeviceGetAttribute");
  return major * 10 + minor;
}

}  // namespace

std::string why_no_kernel(const ps::Device& device, bool hopper) {
  if (device.kind() != ps::DeviceKind::cuda) return "it needs a GPU";
  const int found = compute_capability(device);
  const auto says = [&](const char* needed) {
    return fmt::format("it needs compute capability {}, and {} has {}.{}", needed, device.name(),
                       found / 10, found % 10);
  };
  if (hopper && found != 90) return says("9.0, for bulk copies");
  return found < 80 ? says("8.0") : "";
}

void check_view(std::string_view argument, const ps::TensorView& view, ps::DType type,
                const ps::Device& device) {
  const auto refuse = [&](std::string_view expected) {
    throw ps::InvalidArgument(argument, expected, view.describe());
  };
  if (view.dtype() != type) refuse(fmt::format("elements of type {}", name(type)));
  if (!view.is_contiguous()) refuse("a contiguous view");
  if (view.elements() == 0) return;
  if (reinterpret_cast<std::uintptr_t>(view.data()) % size_of(type) != 0) {
    refuse(fmt::format("data at a multiple of {} bytes", size_of(type)));
  }
  if (view.place() != device.place()) {
    refuse(fmt::format("memory of {}, the stream's device", device.name()));
  }
}

void check_apart(std::string_view written, const ps::TensorView& out, std::string_view read,
                 const ps::TensorView& in) {
  if (out.elements() == 0 || in.elements() == 0) return;
  const auto begin_out = reinterpret_cast<std::uintptr_t>(out.data());
  const auto begin_in = reinterpret_cast<std::uintptr_t>(in.data());
  if (begin_in < begin_out + out.bytes() && begin_out < begin_in + in.bytes()) {
    throw ps::InvalidArgument(written, fmt::format("memory apart from {}", read),
                              "memory that overlaps it");
  }
}

}  // namespace ladder
