// The driver's encoder, found at run time: nothing links libcuda.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstring>
#include <string>

#include "kit/tiled_map.h"
#include "penstock/base/error.h"

namespace ps::kit::detail {
namespace {

// Our enumerators and numbers are the driver's.
static_assert(sizeof(CUtensorMap) == sizeof(TensorMap) && alignof(CUtensorMap) <= 128);
static_assert(CU_TENSOR_MAP_DATA_TYPE_UINT8 == 0 && CU_TENSOR_MAP_DATA_TYPE_INT32 == 3 &&
              CU_TENSOR_MAP_DATA_TYPE_INT64 == 5 && CU_TENSOR_MAP_DATA_TYPE_FLOAT16 == 6 &&
              CU_TENSOR_MAP_DATA_TYPE_FLOAT32 == 7 && CU_TENSOR_MAP_DATA_TYPE_FLOAT64 == 8 &&
              CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 == 9);
static_assert(static_cast<int>(Interleave::b16) == CU_TENSOR_MAP_INTERLEAVE_16B &&
              static_cast<int>(Interleave::b32) == CU_TENSOR_MAP_INTERLEAVE_32B);
static_assert(static_cast<int>(Swizzle::b32) == CU_TENSOR_MAP_SWIZZLE_32B &&
              static_cast<int>(Swizzle::b64) == CU_TENSOR_MAP_SWIZZLE_64B &&
              static_cast<int>(Swizzle::b128) == CU_TENSOR_MAP_SWIZZLE_128B);
static_assert(static_cast<int>(L2Promotion::b64) == CU_TENSOR_MAP_L2_PROMOTION_L2_64B &&
              static_cast<int>(L2Promotion::b128) == CU_TENSOR_MAP_L2_PROMOTION_L2_128B &&
              static_cast<int>(L2Promotion::b256) == CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
static_assert(static_cast<int>(Fill::nan) == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);

struct Encoder {
  decltype(&cuTensorMapEncodeTiled) call = nullptr;
  std::string why_not = {};
};

Encoder find_encoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                              12000, cudaEnableDefault, &result);
  if (status != cudaSuccess) {
    int version = 0;
    const bool none = cudaDriverGetVersion(&version) == cudaSuccess && version == 0;
    cudaGetLastError();
    return {.why_not = none ? "no NVIDIA driver is loaded" : cudaGetErrorString(status)};
  }
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    return {.why_not = "this driver does not support them; drivers for CUDA 12.0 and newer do"};
  }
  return {.call = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)};
}

[[noreturn]] void refuse(const std::string& why) {
  throw Unsupported("tensor maps need a GPU of compute capability 9.0 and its driver: " + why);
}

constexpr int unknown = -1;  // which device is current

// Put together only for an error, as operators encode many maps.
std::string name_of(int device) {
  return device == unknown ? "cuda" : fmt::format("cuda:{}", device);
}

[[noreturn]] void fail(int device, const char* call, cudaError_t status,
                       const TensorMapOptions& options) {
  cudaGetLastError();
  if (status == cudaErrorNoDevice) refuse(cudaGetErrorString(status));
  throw DeviceError(name_of(device), call, status,
                    fmt::format("{}, for {}", cudaGetErrorString(status), describe(options)));
}

int current_device(const TensorMapOptions& options) {
  int device = 0;
  const cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) fail(unknown, "cudaGetDevice", status, options);
  return device;
}

// Other GPUs refuse the arguments without a word about why.
void check_capability(int device, const TensorMapOptions& options) {
  int major = 0;
  const cudaError_t status =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (status != cudaSuccess) fail(device, "cudaDeviceGetAttribute", status, options);
  if (major < 9) {
    refuse(fmt::format("{} has {}.x; copy with cp.async instead", name_of(device), major));
  }
}

}  // namespace

TensorMap encode_tiled(const TiledMap& map, const TensorMapOptions& options) {
  static const Encoder encoder = find_encoder();
  if (encoder.call == nullptr) refuse(encoder.why_not);
  const Place place = options.tensor.place();
  const int device = place.memory == Memory::device ? place.device : current_device(options);
  check_capability(device, options);

  CUtensorMap made{};
  const auto ask = [&] {
    return encoder.call(&made, static_cast<CUtensorMapDataType>(map.type), map.rank, map.address,
                        map.dimensions.data(), map.stride_bytes.data(), map.box.data(),
                        map.element_strides.data(),
                        static_cast<CUtensorMapInterleave>(options.interleave),
                        static_cast<CUtensorMapSwizzle>(options.swizzle),
                        static_cast<CUtensorMapL2promotion>(options.l2_promotion),
                        static_cast<CUtensorMapFloatOOBfill>(options.fill));
  };
  CUresult result = ask();
  if (result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_INVALID_CONTEXT) {
    // This thread has not used a GPU yet: it takes up the one that is current.
    const cudaError_t status = cudaSetDevice(current_device(options));
    if (status != cudaSuccess) fail(device, "cudaSetDevice", status, options);
    result = ask();
  }
  // The driver's codes are the runtime's here.
  if (result != CUDA_SUCCESS) {
    fail(device, "cuTensorMapEncodeTiled", static_cast<cudaError_t>(result), options);
  }
  TensorMap bytes;
  std::memcpy(bytes.bytes, &made, sizeof(bytes));
  return bytes;
}

}  // namespace ps::kit::detail
