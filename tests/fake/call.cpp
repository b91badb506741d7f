#include "fake/call.h"

#include <fmt/format.h>

#include <utility>

namespace ps::test {

Call::Call(Simulation& simulation, const char* name, OnFault on_fault)
    : simulation_(simulation), name_(name), on_fault_(on_fault), lock_(simulation.mutex) {
  const Faults::Verdict verdict = simulation_.faults.on_call(name);
  if (verdict.lost) {
    simulation_.lose(*verdict.lost, verdict.lost_with);
    simulation_.settle(lock_);
  }
  if (verdict.status != cuda::success) fail(verdict.status);
  if (simulation_.inside_host_function()) {
    on_fault_ = OnFault::does_nothing;
    wrong(fmt::format("{} is called inside a host function", name), not_permitted);
  }
}

cuda::Status Call::fail(cuda::Status status) {
  status_ = status;
  if (status != cuda::success) simulation_.caller().last_error = status;
  return status;
}

cuda::Status Call::wrong(std::string violation, cuda::Status status) {
  simulation_.violation(std::move(violation));
  return fail(status);
}

cuda::Status Call::conclude(AddressSpace::Result result) {
  if (!result.wrong.empty()) return wrong(std::move(result.wrong));
  return result.out_of_memory ? fail(cuda::memory_allocation) : status_;
}

bool Call::is_lost(int device) const {
  return simulation_.devices[static_cast<std::size_t>(device)].lost != cuda::success;
}

bool Call::on(int device) {
  if (is_lost(device)) {
    simulation_.settle(lock_);  // whoever learns of the loss may use the memory at once
    fail(simulation_.devices[static_cast<std::size_t>(device)].lost);
  }
  return proceeds();
}

std::shared_ptr<FakeStream> Call::stream(cuda::StreamHandle handle) {
  std::shared_ptr<FakeStream> stream;
  if (DefaultStream::is(handle)) {
    const auto found = simulation_.default_streams.find(DefaultStream::here(handle, current()));
    if (found != simulation_.default_streams.end()) stream = found->second;
  } else if (const auto found = simulation_.stream_handles.find(handle);
             found != simulation_.stream_handles.end()) {
    stream = found->second;
  }
  if (stream == nullptr) {
    wrong(DefaultStream::is(handle)
              ? fmt::format("{} on default stream {} of device {}, which the caller did not pass "
                            "(or passed on another device or thread)",
                            name_, handle, current())
              : fmt::format("{} on {}, which is not a stream", name_, handle),
          invalid_handle);
    return nullptr;
  }
  return on(stream->device) ? stream : nullptr;
}

FakeEvent* Call::event(cuda::EventHandle handle) {
  const auto found = simulation_.events.find(handle);
  if (found == simulation_.events.end()) {
    wrong(fmt::format("{} of {}, which is not an event", name_, handle), invalid_handle);
    return nullptr;
  }
  return on(found->second.device) ? &found->second : nullptr;
}

std::shared_ptr<FakePool> Call::pool(cuda::PoolHandle handle) {
  const auto found = simulation_.pools.find(handle);
  if (found == simulation_.pools.end()) {
    wrong(fmt::format("{} of {}, which is not a pool", name_, handle), invalid_value);
    return nullptr;
  }
  return on(found->second->device()) ? found->second : nullptr;
}

bool Call::forbidden_in_capture(const FakeStream& stream) {
  if (!stream.capturing) return false;
  wrong(fmt::format("{} on {}, which is being captured", name_, stream.name()),
        capture_unsupported);
  return true;
}

}  // namespace ps::test
