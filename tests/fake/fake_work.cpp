// Work of the fake driver that touches memory: copies, fills, kernels, and the host's own accesses.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "fake/call.h"
#include "fake/fake_driver.h"
#include "fake/simulation.h"

namespace ps::test {
namespace {

// Checks what the operation touches and enqueues it. Work that is wrong is reported and left out:
// run, it would be a race or a use after free of this process.
void launch(Simulation& simulation, FakeStream& stream, const Operation& operation,
            const std::vector<Bytes>& reads, const std::vector<Bytes>& writes,
            std::function<void()> function) {
  std::string complaint;
  for (const Bytes& read : reads) {
    if (complaint.empty()) {
      complaint = simulation.ledger.access(operation, read.data, read.bytes, false);
    }
  }
  for (const Bytes& write : writes) {
    if (complaint.empty()) {
      complaint = simulation.ledger.access(operation, write.data, write.bytes, true);
    }
  }
  MemoryWork work{.failure = simulation.faults.on_work()};
  if (complaint.empty()) {
    work.run = std::move(function);
  } else {
    simulation.violation(std::move(complaint));
  }
  simulation.enqueue(stream, {.body = std::move(work)});
}

bool overlap(const void* a, const void* b, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return first < second + bytes && second < first + bytes;
}

}  // namespace

cuda::Status FakeDriver::copy(void* dst, const void* src, std::size_t bytes,
                              cuda::StreamHandle handle) {
  Call call(*simulation_, "copy");
  if (!call.proceeds()) return call.status();
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  if (!stream || bytes == 0) return call.status();
  Ledger& ledger = simulation_->ledger;
  bool pageable = ledger.covers(dst, bytes, MemoryKind::pageable) ||
                  ledger.covers(src, bytes, MemoryKind::pageable);
  if (pageable && call.forbidden_in_capture(*stream)) return call.status();
  if (stream->capturing) return call.status();
  if (overlap(dst, src, bytes)) return call.wrong("copy between overlapping bytes");
  std::vector<const void*> callers;  // memory that is known for as long as the copy takes
  for (const void* data : {static_cast<const void*>(dst), src}) {
    if (!simulation_->options.pageable_copies || ledger.touches(data, bytes)) continue;
    ledger.add(data, bytes, MemoryKind::pageable, 0);
    callers.push_back(data);
    pageable = true;
  }
  launch(*simulation_, *stream, simulation_->next_operation(*stream, "copy"), {{src, bytes}},
         {{dst, bytes}}, [=] { std::memcpy(dst, src, bytes); });
  if (pageable) {
    const Clock clock = stream->clock;
    simulation_->wait_for(call.lock(), *stream, stream->enqueued);
    if (call.on(stream->device)) simulation_->host.learn(clock);
  }
  for (const void* data : callers) ledger.remove(data);
  return call.status();
}

cuda::Status FakeDriver::fill(void* dst, int value, std::size_t bytes, cuda::StreamHandle handle) {
  Call call(*simulation_, "fill");
  if (!call.proceeds()) return call.status();
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  if (!stream || bytes == 0 || stream->capturing) return call.status();
  Operation operation = simulation_->next_operation(*stream, "fill");
  operation.local_only = true;
  launch(*simulation_, *stream, operation, {}, {{dst, bytes}},
         [=] { std::memset(dst, value, bytes); });
  return call.status();
}

cuda::Status FakeDriver::kernel(cuda::StreamHandle handle, std::vector<Bytes> reads,
                                std::vector<Bytes> writes, std::function<void()> function) {
  Call call(*simulation_, "kernel");
  if (!call.proceeds()) return call.status();
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  if (!stream || stream->capturing) return call.status();
  if (stream->device != call.current()) {
    return call.wrong(fmt::format("kernel on {} of device {} while device {} is current",
                                  stream->name(), stream->device, call.current()),
                      invalid_handle);
  }
  Operation operation = simulation_->next_operation(*stream, "kernel");
  operation.local_only = true;
  launch(*simulation_, *stream, operation, reads, writes, std::move(function));
  return call.status();
}

void FakeDriver::pass(std::chrono::nanoseconds time) { simulation_->passed += time.count(); }

void FakeDriver::host_read(const void* data, std::size_t bytes) {
  const Simulation::Lock lock(simulation_->mutex);
  std::string complaint = simulation_->ledger.host_access(data, bytes, false);
  if (!complaint.empty()) simulation_->violation(std::move(complaint));
}

void FakeDriver::host_write(const void* data, std::size_t bytes) {
  const Simulation::Lock lock(simulation_->mutex);
  std::string complaint = simulation_->ledger.host_access(data, bytes, true);
  if (!complaint.empty()) simulation_->violation(std::move(complaint));
}

void FakeDriver::allow_pageable(const void* data, std::size_t bytes) {
  const Simulation::Lock lock(simulation_->mutex);
  simulation_->ledger.add(data, bytes, MemoryKind::pageable, 0);
}

void FakeDriver::forget_pageable(const void* data) {
  const Simulation::Lock lock(simulation_->mutex);
  simulation_->ledger.remove(data);
}

}  // namespace ps::test
