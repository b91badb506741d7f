// A machine with fake GPUs for as long as this object lives.
#pragma once

#include <memory>

#include "fake/fake_driver.h"
#include "penstock/host/device.h"
#include "penstock/host/stream.h"

namespace ps::test {

class FakeMachine {
 public:
  explicit FakeMachine(FakeOptions options = {});
  ~FakeMachine();
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  FakeDriver& driver() { return *driver_; }
  Device gpu(int index = 0) const { return Device::cuda(index); }

 private:
  std::shared_ptr<FakeDriver> driver_;
};

// Launches a kernel on a stream of the fake, as an operator does: on its device, with its errors
// thrown. Throws DeviceError.
void launch(FakeDriver& driver, const Stream& stream, std::vector<Bytes> reads,
            std::vector<Bytes> writes, std::function<void()> function);

}  // namespace ps::test
