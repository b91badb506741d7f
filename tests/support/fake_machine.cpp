#include "support/fake_machine.h"

#include <utility>

#include "host/cuda/backend.h"
#include "host/runtime.h"

namespace ps::test {

FakeMachine::FakeMachine(FakeOptions options)
    : driver_(std::make_shared<FakeDriver>(std::move(options))) {
  detail::replace_driver(driver_);
}

FakeMachine::~FakeMachine() { detail::replace_driver(nullptr); }

void launch(FakeDriver& driver, const Stream& stream, std::vector<Bytes> reads,
            std::vector<Bytes> writes, std::function<void()> function) {
  auto& backend = dynamic_cast<cuda::Backend&>(stream.impl().backend());
  const auto current = backend.make_current();
  backend.check(
      driver.kernel(stream.native(), std::move(reads), std::move(writes), std::move(function)),
      "launching a kernel");
}

}  // namespace ps::test
