// What the tests on a real GPU share.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/base/view.h"
#include "penstock/host/device.h"
#include "penstock/host/event.h"
#include "support/watchdog.h"

namespace ps::test {

// A byte no test writes; four of them are a NaN.
inline constexpr std::uint8_t poison = 0xFF;

// Neither the caller's CUDA runtime nor the library's own copy of it has an error to report. Both
// are cleared.
testing::AssertionResult no_error_left();

testing::AssertionResult all_are(const std::vector<std::uint8_t>& bytes, std::uint8_t value);

// `count` floats of `memory`, from the given one on.
TensorView floats(MemoryView memory, std::size_t offset, std::size_t count);

// Skips without a GPU; a test that hangs ends the program; every test leaves no error behind.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // What `memory` holds now, by CUDA's own means and past every stream: it waits for none.
  std::vector<std::uint8_t> look(MemoryView memory) const;

  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name(),
                    std::chrono::seconds(120)};
  Device gpu = Device::best();

 private:
  cudaStream_t observer_ = nullptr;
};

// A stream of the caller's own making.
class CallersStream {
 public:
  explicit CallersStream(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, flags), cudaSuccess);
  }
  ~CallersStream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
  CallersStream(const CallersStream&) = delete;
  CallersStream& operator=(const CallersStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace ps::test
