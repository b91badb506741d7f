#include "support/side_stream.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "host/clock.h"
#include "host/device_clock.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "penstock/measure/timing.h"

namespace bench {
namespace {

struct Ring {
  std::mutex mutex;
  std::condition_variable came_back;
  std::deque<std::size_t> free;
};

struct Slot {
  Ring* ring;
  std::size_t index;
  ps::Event done;
  std::int64_t came_back_ns = 0;
};

void come_back(void* data) {
  auto* slot = static_cast<Slot*>(data);
  const std::lock_guard lock(slot->ring->mutex);
  slot->came_back_ns = ps::detail::now_ns();
  slot->ring->free.push_back(slot->index);
  slot->ring->came_back.notify_one();
}

}  // namespace

SideStreamTimes recycle_by_side_stream(const ps::Device& device, ps::MemoryView target,
                                       std::size_t slots, int batches) {
  const ps::Stream stream(device), side(device);
  const ps::PinnedBuffer memory(device, slots * target.bytes);
  ps::detail::DeviceClock clock{ps::Stream(device)};
  Ring ring;
  std::vector<Slot> all;
  for (std::size_t i = 0; i < slots; ++i) {
    all.push_back({&ring, i, ps::Event(device, {.timing = true}), 0});
    ring.free.push_back(i);
  }
  std::vector<std::pair<double, std::int64_t>> samples;
  SideStreamTimes times;
  times.seconds = ps::seconds_of([&] {
    for (int i = 0; i < batches; ++i) {
      std::unique_lock lock(ring.mutex);
      ring.came_back.wait(lock, [&] { return !ring.free.empty(); });
      Slot& slot = all[ring.free.front()];
      ring.free.pop_front();
      lock.unlock();
      if (slot.came_back_ns != 0) {
        samples.emplace_back(ps::Event::seconds_between(clock.origin(), slot.done),
                             slot.came_back_ns);
      }
      ps::copy(target, memory.view().sub(slot.index * target.bytes, target.bytes), stream);
      stream.record(slot.done);
      side.wait(slot.done);
      cudaLaunchHostFunc(ps::cuda_stream(side), &come_back, &slot);
    }
    stream.synchronize();
    side.synchronize();
  });
  clock.close();
  std::vector<double> late;
  for (const auto& [device_seconds, host_ns] : samples) {
    late.push_back(static_cast<double>(host_ns - clock.host_ns(device_seconds)) * 1e-3);
  }
  std::ranges::sort(late);
  times.p50_us = late[late.size() / 2];
  times.p99_us = late[late.size() * 99 / 100];
  return times;
}

}  // namespace bench
