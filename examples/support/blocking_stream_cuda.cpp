#include "penstock/host/cuda.h"

#include <utility>
#include "support/blocking_stream.h"
#include "support/check_cuda.h"

namespace ladder {

BlockingStream make_blocking_stream(const ps::Device& device) {
  check(cudaSetDevice(device.index()), "cudaSetDevice");
  cudaStream_t native = nullptr;
  check(cudaStreamCreate(&native), "cudaStreamCreate");
  std::shared_ptr<void> owner(
      native, [](void* stream) { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); });
  return {std::move(owner), ps::borrow(device, native)};
}

ps::Stream legacy_stream(const ps::Device& device) { return ps::borrow(device, cudaStreamLegacy); }

}  // namespace ladder
