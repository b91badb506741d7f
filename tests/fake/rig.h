// Short ways to make things of a fake driver; what a test makes is destroyed with the rig.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "fake/fake_driver.h"

namespace ps::test {

class Rig {
 public:
  explicit Rig(FakeOptions options = {}) : driver(std::move(options)) {}

  ~Rig() {
    for (int device = 0; device < devices_; ++device) {
      driver.set_device(device);
      driver.device_synchronize();
    }
    for (void* event : events_) driver.event_destroy(event);
    for (void* stream : streams_) driver.stream_destroy(stream);
    for (void* data : pinned_) driver.host_free(data);
    for (void* data : device_) driver.device_free(data);
  }

  cuda::StreamHandle stream(int device = 0) {
    use(device);
    cuda::StreamHandle handle = nullptr;
    EXPECT_EQ(driver.stream_create(&handle, false), cuda::success);
    return streams_.emplace_back(handle);
  }

  cuda::EventHandle event(int device = 0, bool timing = false) {
    use(device);
    cuda::EventHandle handle = nullptr;
    EXPECT_EQ(driver.event_create(&handle, timing, true), cuda::success);
    return events_.emplace_back(handle);
  }

  std::uint8_t* pinned(std::size_t bytes) {
    void* data = nullptr;
    EXPECT_EQ(driver.host_alloc(&data, bytes), cuda::success);
    return static_cast<std::uint8_t*>(pinned_.emplace_back(data));
  }

  std::uint8_t* memory(std::size_t bytes, int device = 0) {
    use(device);
    void* data = nullptr;
    EXPECT_EQ(driver.device_alloc(&data, bytes), cuda::success);
    return static_cast<std::uint8_t*>(device_.emplace_back(data));
  }

  // The event marks this point of the stream.
  cuda::EventHandle mark(cuda::StreamHandle stream) {
    const cuda::EventHandle handle = event();
    EXPECT_EQ(driver.event_record(handle, stream), cuda::success);
    return handle;
  }

  FakeDriver driver;

 private:
  void use(int device) {
    devices_ = std::max(devices_, device + 1);
    EXPECT_EQ(driver.set_device(device), cuda::success);
  }

  int devices_ = 1;
  std::vector<void*> streams_, events_, pinned_, device_;
};

}  // namespace ps::test
