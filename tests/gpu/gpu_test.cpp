#include "gpu/gpu_test.h"

#include <algorithm>

#include "host/runtime.h"

namespace ps::test {

testing::AssertionResult no_error_left() {
  // The library links a CUDA runtime of its own, whose last error is another.
  const cudaError_t callers = cudaGetLastError();
  const auto library = static_cast<cudaError_t>(detail::runtime()->driver->last_error());
  if (callers == cudaSuccess && library == cudaSuccess) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "left behind: for the caller " << cudaGetErrorName(callers)
                                     << ", in the library " << cudaGetErrorName(library);
}

testing::AssertionResult all_are(const std::vector<std::uint8_t>& bytes, std::uint8_t value) {
  const auto other = std::find_if(bytes.begin(), bytes.end(), [&](auto b) { return b != value; });
  if (other == bytes.end()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "byte " << other - bytes.begin() << " of " << bytes.size()
                                     << " is " << int{*other} << " instead of " << int{value};
}

TensorView floats(MemoryView memory, std::size_t offset, std::size_t count) {
  const MemoryView part = memory.sub(offset * sizeof(float), count * sizeof(float));
  return {part.data, DType::f32, {static_cast<std::int64_t>(count)}, part.place};
}

void GpuTest::SetUp() {
  if (gpu.kind() != DeviceKind::cuda) GTEST_SKIP() << "no GPU: " << Device::why_no_gpu();
  ASSERT_EQ(cudaStreamCreateWithFlags(&observer_, cudaStreamNonBlocking), cudaSuccess);
}

void GpuTest::TearDown() {
  if (observer_ == nullptr) return;
  EXPECT_EQ(cudaStreamDestroy(observer_), cudaSuccess);
  EXPECT_TRUE(no_error_left());
}

std::vector<std::uint8_t> GpuTest::look(MemoryView memory) const {
  std::vector<std::uint8_t> bytes(memory.bytes);
  EXPECT_EQ(cudaMemcpyAsync(bytes.data(), memory.data, bytes.size(), cudaMemcpyDefault, observer_),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(observer_), cudaSuccess);
  return bytes;
}

}  // namespace ps::test
