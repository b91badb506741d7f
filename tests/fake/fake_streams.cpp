// The fake driver's streams and events.
#include <fmt/format.h>

#include <utility>

#include "fake/call.h"
#include "fake/fake_driver.h"
#include "fake/simulation.h"

namespace ps::test {
namespace {

// The host has waited for a point of a stream: it knows what came before, and pools give memory
// back.
void synchronised(Simulation& simulation, int device, const Clock& clock) {
  simulation.host.learn(clock);
  for (const auto& [handle, pool] : simulation.pools) {
    if (pool->device() == device) pool->synchronised();
  }
}

// Waits for a point; after a loss, until its device touches nothing any more.
void wait_for_point(Simulation& simulation, Call& call, const FakeStream& stream, Tick tick,
                    const Clock& clock) {
  simulation.wait_for(call.lock(), stream, tick);
  if (call.is_lost(stream.device)) {
    simulation.settle(call.lock());
    call.on(stream.device);
  } else {
    synchronised(simulation, stream.device, clock);
  }
}

}  // namespace

cuda::StreamHandle FakeDriver::foreign_stream(int device) {
  const Simulation::Lock lock(simulation_->mutex);
  void* handle = simulation_->make_handle();
  simulation_->stream_handles.emplace(handle, simulation_->start_stream(device, false));
  return handle;
}

void FakeDriver::allow_stream(cuda::StreamHandle stream, int device) {
  const Simulation::Lock lock(simulation_->mutex);
  auto& slot = simulation_->default_streams[DefaultStream::here(stream, device)];
  if (!slot) slot = simulation_->start_stream(device, false);
}

void FakeDriver::set_capturing(cuda::StreamHandle stream, bool capturing) {
  const Simulation::Lock lock(simulation_->mutex);
  // Streams that joined the capture leave it with its end.
  for (const auto& other : simulation_->streams) other->capturing = false;
  const auto found = simulation_->stream_handles.find(stream);
  if (found != simulation_->stream_handles.end()) found->second->capturing = capturing;
}

cuda::Status FakeDriver::device_synchronize() {
  Call call(*simulation_, "device_synchronize", OnFault::acts);
  if (!call.proceeds()) return call.status();
  const int device = call.current();
  const auto streams = simulation_->streams;
  for (const auto& stream : streams) {
    if (stream->device != device) continue;
    if (call.forbidden_in_capture(*stream)) return call.status();
    wait_for_point(*simulation_, call, *stream, stream->enqueued, Clock(stream->clock));
  }
  call.on(device);
  return call.status();
}

cuda::Status FakeDriver::stream_create(cuda::StreamHandle* stream, bool /*high_priority*/) {
  Call call(*simulation_, "stream_create");
  if (!call.proceeds() || !call.on(call.current())) return call.status();
  void* handle = simulation_->make_handle();
  simulation_->stream_handles.emplace(handle, simulation_->start_stream(call.current(), true));
  *stream = handle;
  return call.status();
}

cuda::Status FakeDriver::stream_destroy(cuda::StreamHandle handle) {
  Call call(*simulation_, "stream_destroy", OnFault::acts);
  if (!call.proceeds()) return call.status();
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  if (!stream) return call.status();
  if (!stream->owned) {
    return call.wrong(fmt::format("stream_destroy of {}, which is the caller's", stream->name()),
                      invalid_handle);
  }
  simulation_->stream_handles.erase(handle);
  stream->destroyed = true;  // its thread still works off what is queued
  stream->arrived.notify_all();
  return call.status();
}

cuda::Status FakeDriver::stream_synchronize(cuda::StreamHandle handle) {
  Call call(*simulation_, "stream_synchronize", OnFault::acts);
  if (!call.proceeds()) return call.status();
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  if (!stream || call.forbidden_in_capture(*stream)) return call.status();
  wait_for_point(*simulation_, call, *stream, stream->enqueued, Clock(stream->clock));
  return call.status();
}

cuda::Status FakeDriver::stream_query(cuda::StreamHandle handle) {
  Call call(*simulation_, "stream_query");
  if (!call.proceeds()) return call.status();
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  if (!stream || call.forbidden_in_capture(*stream)) return call.status();
  if (!simulation_->reached(*stream, stream->enqueued)) return call.fail(cuda::not_ready);
  simulation_->host.learn(stream->clock);
  return call.status();
}

cuda::Status FakeDriver::stream_wait_event(cuda::StreamHandle handle, cuda::EventHandle event) {
  Call call(*simulation_, "stream_wait_event");
  if (!call.proceeds()) return call.status();
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  const FakeEvent* waited = stream ? call.event(event) : nullptr;
  if (!waited) return call.status();
  if (waited->captured) stream->capturing = true;  // as CUDA does: the fork joins the capture
  if (stream->capturing || !waited->point.stream) return call.status();
  stream->clock.join(waited->point.clock);
  simulation_->enqueue(*stream, {.body = EventWork{waited->point}});
  return call.status();
}

cuda::Status FakeDriver::stream_is_capturing(cuda::StreamHandle handle, bool* capturing) {
  Call call(*simulation_, "stream_is_capturing");
  if (!call.proceeds()) return call.status();
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  if (stream) *capturing = stream->capturing;
  return call.status();
}

cuda::Status FakeDriver::launch_host(cuda::StreamHandle handle, cuda::HostFunction function,
                                     void* data) {
  Call call(*simulation_, "launch_host");
  if (!call.proceeds()) return call.status();
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  if (!stream || stream->capturing) return call.status();
  const Tick before = stream->enqueued;
  const Tick end =
      simulation_->enqueue(*stream, {.body = HostFunctionWork{function, data, stream->clock}}, 2);
  simulation_->ledger.add_gate({.stream = stream->number, .before = before, .tick = end});
  return call.status();
}

cuda::Status FakeDriver::stream_wait_value(cuda::StreamHandle handle, std::uint32_t* flag,
                                           std::uint32_t value) {
  Call call(*simulation_, "stream_wait_value");
  if (!call.proceeds()) return call.status();
  if (!simulation_->options.stream_wait_value) {
    return call.wrong("stream_wait_value on a device that cannot", not_supported);
  }
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  if (!stream || call.forbidden_in_capture(*stream)) return call.status();
  if (!simulation_->ledger.covers(flag, sizeof(*flag), MemoryKind::pinned) &&
      !simulation_->ledger.covers(flag, sizeof(*flag), MemoryKind::registered)) {
    return call.wrong("stream_wait_value on memory that is not page-locked");
  }
  const Operation operation = simulation_->next_operation(*stream, "stream_wait_value");
  std::string complaint = simulation_->ledger.access(operation, flag, sizeof(*flag), false);
  if (!complaint.empty()) return call.wrong(std::move(complaint));
  const HostGate gate{.stream = stream->number,
                      .before = stream->enqueued,
                      .tick = operation.tick,
                      .flag = flag,
                      .value = value};
  simulation_->ledger.add_gate(gate);
  simulation_->enqueue(*stream, {.body = FlagWork{gate}});
  return call.status();
}

cuda::Status FakeDriver::stream_write_value(cuda::StreamHandle handle, std::uint32_t* flag,
                                            std::uint32_t value) {
  Call call(*simulation_, "stream_write_value");
  if (!call.proceeds()) return call.status();
  if (!simulation_->options.stream_wait_value) {
    return call.wrong("stream_write_value on a device that cannot", not_supported);
  }
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  if (!stream || call.forbidden_in_capture(*stream)) return call.status();
  if (!simulation_->ledger.covers(flag, sizeof(*flag), MemoryKind::pinned)) {
    return call.wrong("stream_write_value on memory that is not page-locked");
  }
  // Streams may read it meanwhile, as one that waits does, so it counts as a read as well.
  const Operation operation = simulation_->next_operation(*stream, "stream_write_value");
  std::string complaint = simulation_->ledger.access(operation, flag, sizeof(*flag), false);
  if (!complaint.empty()) return call.wrong(std::move(complaint));
  simulation_->enqueue(*stream, {.body = WriteFlagWork{flag, value}});
  // What is enqueued from now on behind a wait for it follows what this stream did before.
  for (const StreamNumber waiting : simulation_->ledger.opens(flag, value, stream->clock)) {
    simulation_->streams[waiting]->clock.join(stream->clock);
  }
  return call.status();
}

cuda::Status FakeDriver::event_create(cuda::EventHandle* event, bool timing, bool /*blocking*/) {
  Call call(*simulation_, "event_create");
  if (!call.proceeds() || !call.on(call.current())) return call.status();
  void* handle = simulation_->make_handle();
  simulation_->events.emplace(handle, FakeEvent{.device = call.current(), .timing = timing});
  *event = handle;
  return call.status();
}

cuda::Status FakeDriver::event_destroy(cuda::EventHandle event) {
  Call call(*simulation_, "event_destroy", OnFault::acts);
  if (!call.proceeds() || !call.event(event)) return call.status();
  simulation_->events.erase(event);
  return call.status();
}

cuda::Status FakeDriver::event_record(cuda::EventHandle event, cuda::StreamHandle handle) {
  Call call(*simulation_, "event_record");
  if (!call.proceeds()) return call.status();
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  FakeEvent* recorded = stream ? call.event(event) : nullptr;
  if (!recorded) return call.status();
  if (recorded->device != stream->device) {
    return call.wrong(fmt::format("event_record of an event of device {} on {} of device {}",
                                  recorded->device, stream->name(), stream->device),
                      invalid_handle);
  }
  recorded->captured = stream->capturing;
  if (stream->capturing) return call.status();
  auto reached_at = std::make_shared<std::optional<Time>>();
  const Tick tick =
      simulation_->enqueue(*stream, {.finished = [reached_at, simulation = simulation_.get()] {
        *reached_at = simulation->now();
      }});
  recorded->point = {stream, tick, stream->clock, reached_at};
  return call.status();
}

cuda::Status FakeDriver::event_query(cuda::EventHandle event) {
  Call call(*simulation_, "event_query");
  if (!call.proceeds()) return call.status();
  const FakeEvent* queried = call.event(event);
  if (!queried) return call.status();
  if (queried->captured) return call.wrong("event_query of a captured event", capture_unsupported);
  const Point& point = queried->point;
  if (!point.stream) return call.status();
  if (!simulation_->reached(*point.stream, point.tick)) return call.fail(cuda::not_ready);
  simulation_->host.learn(point.clock);
  return call.status();
}

cuda::Status FakeDriver::event_synchronize(cuda::EventHandle event) {
  Call call(*simulation_, "event_synchronize", OnFault::acts);
  if (!call.proceeds()) return call.status();
  const FakeEvent* waited = call.event(event);
  if (!waited) return call.status();
  if (waited->captured) {
    return call.wrong("event_synchronize of a captured event", capture_unsupported);
  }
  const Point point = waited->point;  // the event may be recorded again meanwhile
  if (point.stream) {
    wait_for_point(*simulation_, call, *point.stream, point.tick, point.clock);
  }
  return call.status();
}

cuda::Status FakeDriver::event_elapsed_ms(float* milliseconds, cuda::EventHandle start,
                                          cuda::EventHandle stop) {
  Call call(*simulation_, "event_elapsed_ms");
  if (!call.proceeds()) return call.status();
  const FakeEvent* from = call.event(start);
  const FakeEvent* to = from ? call.event(stop) : nullptr;
  if (!to) return call.status();
  if (!from->timing || !to->timing || !from->point.stream || !to->point.stream ||
      from->device != to->device) {
    return call.fail(invalid_handle);
  }
  const std::optional<Time> began = *from->point.reached_at;
  const std::optional<Time> ended = *to->point.reached_at;
  if (!began || !ended) return call.fail(cuda::not_ready);
  *milliseconds = std::chrono::duration<float, std::milli>(*ended - *began).count();
  return call.status();
}

}  // namespace ps::test
