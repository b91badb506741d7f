#include "gpu/gpu_test.h"

#include <algorithm>
#include <utility>

#include "emulated/include/penstock/kit/launch.cuh"
#include "penstock/base/error.h"

namespace ps::test {
namespace {

FakeDriver* driver = nullptr;

}  // namespace

testing::AssertionResult all_are(const std::vector<std::uint8_t>& bytes, std::uint8_t value) {
  const auto other = std::ranges::find_if(bytes, [&](auto byte) { return byte != value; });
  if (other == bytes.end()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "byte " << other - bytes.begin() << " of " << bytes.size()
                                     << " is " << int{*other} << " instead of " << int{value};
}

// Of compute capability 8.0: kernels for Hopper are not emulated.
GpuTest::GpuTest()
    : machine_({.pageable_copies = true,
                .adjust = [](int, cuda::Properties& has) { has.major = 8, has.minor = 0; },
                .max_delay_us = 0}) {
  driver = &machine_.driver();
}
GpuTest::~GpuTest() { driver = nullptr; }

void GpuTest::TearDown() {
  EXPECT_GT(emulated::blocks_run(), blocks_before_) << "no kernel was emulated";
  EXPECT_EQ(machine_.driver().violations(), std::vector<std::string>{});
}

}  // namespace ps::test

void ps::emulated::enqueue(cudaStream_t stream, const dim3& grid, std::function<void()> run) {
  constexpr unsigned most = 65535;  // as on every GPU; along x there may be 2^31 - 1
  const bool fits = grid.x > 0 && grid.x < 1U << 31 && grid.y > 0 && grid.y <= most && grid.z > 0 &&
                    grid.z <= most;
  const cuda::Status status =
      fits ? test::driver->kernel(stream, {}, {}, std::move(run)) : cudaErrorInvalidConfiguration;
  if (status != cudaSuccess) {
    throw DeviceError("cuda:0", "launching an emulated kernel", status, "refused");
  }
}

// launch.h changes the capture mode around launches.
extern "C" cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
