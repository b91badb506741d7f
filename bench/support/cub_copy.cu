#include "support/cub_copy.h"

#include <cstdint>
#include <cub/device/device_transform.cuh>
#include <cub/version.cuh>
#include <cuda/std/functional>
#include <stdexcept>

namespace bench {
namespace {

template <class Element>
void transform(const float* in, float* out, std::size_t count, cudaStream_t stream) {
  const auto elements = static_cast<std::int64_t>(count * sizeof(float) / sizeof(Element));
  const cudaError_t status = cub::DeviceTransform::Transform(
      reinterpret_cast<const Element*>(in), reinterpret_cast<Element*>(out), elements,
      cuda::std::identity{}, stream);
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string("cub::DeviceTransform: ") + cudaGetErrorString(status));
}

}  // namespace

std::string cub_version() {
  return std::to_string(CUB_MAJOR_VERSION) + "." + std::to_string(CUB_MINOR_VERSION) + "." +
         std::to_string(CUB_SUBMINOR_VERSION);
}

void cub_copy(const float* in, float* out, std::size_t count, bool vectors, cudaStream_t stream) {
  if (vectors) {
    transform<float4>(in, out, count, stream);
  } else {
    transform<float>(in, out, count, stream);
  }
}

}  // namespace bench
