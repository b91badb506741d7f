// A kernel that writes where there is nothing ends the device for the process. Each case therefore
// has a process of its own: this program again, running one of the disabled tests below.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "gpu/gpu_pipeline.h"
#include "gpu/gpu_test.h"
#include "penstock/base/error.h"
#include "penstock/host/cuda.h"
#include "penstock/host/growable.h"
#include "penstock/host/slot_ring.h"
#include "penstock/ops/iterate.h"
#include "support/child.h"
#include "support/failure_of.h"

namespace ps::test {
namespace {

constexpr int reported = 3;  // how a process ends that saw everything it should

void touch_nowhere(const Stream& stream) {
  // An address that nothing is mapped at. NOLINTNEXTLINE(performance-no-int-to-ptr)
  auto* const nowhere = reinterpret_cast<void*>(std::uintptr_t{1} << 20);
  const TensorView data(nowhere, DType::f32, {1000}, stream.device().place());
  iterate({.in = data, .out = data}, stream);
}

class DeviceLossGpu : public GpuTest {
 protected:
  static void expect_reported(const std::string& test) {
    const Ended ended = run_disabled_test("InAProcessOfItsOwn.DISABLED_" + test);
    EXPECT_EQ(ended.signal, 0) << ended.out << ended.err;
    EXPECT_EQ(ended.code, reported) << ended.out << ended.err;
    EXPECT_NE(ended.err.find("cuda:0"), std::string::npos) << ended.err;
    EXPECT_NE(ended.err.find("cudaErrorIllegalAddress"), std::string::npos) << ended.err;
  }
};

TEST_F(DeviceLossGpu, EveryLaterCallSaysSo) { expect_reported("EveryLaterCallSaysSo"); }
TEST_F(DeviceLossGpu, ARunFailsWithTheCause) { expect_reported("ARunFailsWithTheCause"); }

// Ends the process as a program would: with the error's words and a code of its own.
[[noreturn]] void end(const std::exception_ptr& failure) {
  std::fprintf(stderr, "%s\n", text(failure).c_str());
  std::exit(testing::Test::HasFailure() ? 1 : reported);
}

TEST(InAProcessOfItsOwn, DISABLED_EveryLaterCallSaysSo) {
  std::exception_ptr last;
  {
    const Device gpu = Device::cuda(0);
    const Stream stream(gpu), other(gpu);
    const Event event(gpu);
    const Pool pool(gpu);
    const DeviceBuffer memory(gpu, 64);
    const PinnedBuffer pinned(gpu, 64);
    GrowableBuffer growable(gpu, {.capacity = 1 << 22});
    SlotRing ring(gpu, {.slots = 1, .slot_bytes = 64});
    touch_nowhere(stream);
    const auto first = failure_of([&] { stream.synchronize(); });
    EXPECT_TRUE(is<DeviceError>(first)) << text(first);
    EXPECT_FALSE(is<DeviceLost>(first)) << "the first error is the cause itself";

    const std::pair<const char*, std::function<void()>> calls[] = {
        {"Stream", [&] { const Stream made(gpu); }},
        {"Event", [&] { const Event made(gpu); }},
        {"Pool", [&] { const Pool made(gpu); }},
        {"PinnedBuffer", [&] { const PinnedBuffer made(gpu, 8); }},
        {"DeviceBuffer", [&] { const DeviceBuffer made(gpu, 8); }},
        {"Device::synchronize", [&] { gpu.synchronize(); }},
        {"fill", [&] { fill(memory.view(), 1, other); }},
        {"copy", [&] { copy(memory.view(), pinned.view(), other); }},
        {"iterate", [&] { touch_nowhere(other); }},
        {"record", [&] { other.record(event); }},
        {"wait", [&] { other.wait(event); }},
        {"call", [&] { other.call([] {}); }},
        {"notify", [&] { other.notify([] {}); }},
        {"Stream::synchronize", [&] { other.synchronize(); }},
        {"Stream::done", [&] { (void)other.done(); }},
        {"Event::synchronize", [&] { event.synchronize(); }},
        {"allocate", [&] { (void)pool.allocate(8, other); }},
        {"trim", [&] { pool.trim(); }},
        {"grow", [&] { growable.grow(growable.mapped() + 1, other); }},
        {"release_after", [&] { ring.acquire().release_after(other); }},
        {"Pipeline", [&] { GpuPipeline(gpu).run({.items = 1}); }},
    };
    for (const auto& [name, call] : calls) {
      last = failure_of(call);
      EXPECT_TRUE(is<DeviceLost>(last)) << name << ": " << text(last);
      EXPECT_NE(text(last).find("synchronising a stream"), std::string::npos)
          << name << " does not name the first cause: " << text(last);
    }
  }
  end(last);
}

TEST(InAProcessOfItsOwn, DISABLED_ARunFailsWithTheCause) {
  std::exception_ptr last;
  {
    GpuPipeline pipeline(Device::cuda(0));
    pipeline.run_well(10);
    pipeline.hook = [](const std::string& stage, Item& item) {
      if (stage == "compute" && item.index() == 3) touch_nowhere(item.stream());
    };
    const auto first = failure_of([&] { pipeline.run({.items = 20}); });
    EXPECT_TRUE(is<DeviceError>(first)) << text(first);
    pipeline.hook = nullptr;
    last = failure_of([&] { pipeline.run({.items = 20}); });
    EXPECT_TRUE(is<DeviceLost>(last)) << text(last);
  }
  end(last);
}

}  // namespace
}  // namespace ps::test
