// The CPU backend's memory runs out at every allocation, one after the other, over a whole run of a
// pipeline: an error that says so, nothing leaked, no hang, and the same pipeline runs again.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "host/cpu/backend.h"
#include "penstock/base/error.h"
#include "penstock/host/slot_ring.h"
#include "support/failing_heap.h"
#include "support/failure_of.h"
#include "support/tiny_pipeline.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

// A few items, of which every allocation fails; and with one slot per ring, whose window holds 16
// items, enough to fill the window, wait, and fill it again. Of their allocations, a sample fails.
struct MemoryRun {
  std::uint64_t items;
  std::size_t depth;
  std::uint64_t stride;  // from one allocation that fails to the next
};
constexpr MemoryRun memory_run{6, 2, 1}, long_memory_run{40, 1, 3};

class CpuMemoryFaults : public testing::Test {
 protected:
  ~CpuMemoryFaults() override { EXPECT_EQ(heap->outstanding(), 0) << "memory was not given back"; }

  Watchdog watchdog{"CpuMemoryFaults"};
  std::shared_ptr<FailingHeap> heap = std::make_shared<FailingHeap>();
  std::optional<Device> device{Device(std::make_shared<cpu::Backend>(heap))};
};

TEST_F(CpuMemoryFaults, AnyAllocationOfARunFails) {
  for (const MemoryRun& run : {memory_run, long_memory_run}) {
    for (const bool host_stages : {true, false}) {
      bool struck = true;
      std::uint64_t failed = 0;
      for (std::uint64_t n = 1; struck; n += run.stride) {
        const std::string here =
            "allocation " + std::to_string(n) + " of " + std::to_string(run.items) + " items";
        watchdog.step(here);
        TinyPipeline tiny(*device,
                          {.depth = run.depth, .host_stages = host_stages, .host_calls = true});
        heap->fail_at(n);
        const auto failure = failure_of([&] { tiny.run({.items = run.items}); });
        struck = heap->struck();
        heap->fail_at(0);
        EXPECT_EQ(struck, failure != nullptr) << here << ": " << text(failure);
        if (failure) {
          EXPECT_TRUE(is<OutOfMemory>(failure)) << here << ": " << text(failure);
          ++failed;
        }
        tiny.run_well(run.items);
      }
      EXPECT_GT(failed, 2U / run.stride)
          << "the run allocates rings and scratch, so some must have failed";
    }
  }
  device.reset();
}

TEST_F(CpuMemoryFaults, ARingThatCannotBeMadeLeavesNothing) {
  heap->fail_at(1);
  EXPECT_THROW(SlotRing(*device, {.slots = 4, .slot_bytes = 64}), OutOfMemory);
  heap->fail_at(0);
  const SlotRing ring(*device, {.slots = 4, .slot_bytes = 64});
  EXPECT_EQ(ring.statistics().free_slots, 4U);
}

}  // namespace
}  // namespace ps::test
