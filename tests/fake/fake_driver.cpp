// The fake driver as a test sees it: what it watched, the faults it was given, and its devices.
#include "fake/fake_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fake/call.h"
#include "fake/simulation.h"

namespace ps::test {

std::ostream& operator<<(std::ostream& out, const Outstanding& counts) {
  return out << fmt::format(
             "{} streams, {} events, {} pools; allocations: {} pinned, {} device, {} pool; "
             "{} registered ranges; {} reservations, {} memories, {} mappings",
             counts.streams, counts.events, counts.pools, counts.pinned, counts.device, counts.pool,
             counts.registered, counts.reservations, counts.memories, counts.mappings);
}

FakeDriver::FakeDriver(FakeOptions options)
    : simulation_(std::make_shared<Simulation>(std::move(options))) {}

FakeDriver::~FakeDriver() { simulation_->close(); }

std::vector<std::string> FakeDriver::violations() const {
  const Simulation::Lock lock(simulation_->mutex);
  return simulation_->violations;
}

void FakeDriver::forgive() {
  const Simulation::Lock lock(simulation_->mutex);
  simulation_->violations.clear();
}

Outstanding FakeDriver::outstanding() const {
  const Simulation::Lock lock(simulation_->mutex);
  Outstanding counts;
  for (const auto& [handle, stream] : simulation_->stream_handles) counts.streams += stream->owned;
  counts.events = simulation_->events.size();
  counts.pools = simulation_->pools.size();
  counts.pinned = simulation_->ledger.count(MemoryKind::pinned);
  counts.device = simulation_->ledger.count(MemoryKind::device);
  counts.pool = simulation_->pool_memory.size();
  counts.registered = simulation_->ledger.count(MemoryKind::registered);
  counts.reservations = simulation_->addresses.reservations();
  counts.memories = simulation_->addresses.memories();
  counts.mappings = simulation_->addresses.mappings();
  return counts;
}

std::vector<cuda::Status> FakeDriver::uncleared_errors() const {
  const Simulation::Lock lock(simulation_->mutex);
  std::vector<cuda::Status> errors;
  for (const auto& caller : simulation_->callers) {
    if (caller->last_error != cuda::success) errors.push_back(caller->last_error);
  }
  return errors;
}

std::uint64_t FakeDriver::calls() const {
  const Simulation::Lock lock(simulation_->mutex);
  return simulation_->faults.calls();
}

std::uint64_t FakeDriver::calls(std::string_view name) const {
  const Simulation::Lock lock(simulation_->mutex);
  return simulation_->faults.calls(name);
}

void FakeDriver::fail_call(std::uint64_t n, cuda::Status status, CallNames names) {
  const Simulation::Lock lock(simulation_->mutex);
  simulation_->faults.fail_call(n, status, std::move(names));
}

void FakeDriver::lose_device_at(std::uint64_t n, int device, cuda::Status status) {
  const Simulation::Lock lock(simulation_->mutex);
  simulation_->faults.lose_device_at(n, device, status);
}

void FakeDriver::fail_work(std::uint64_t n, cuda::Status status) {
  const Simulation::Lock lock(simulation_->mutex);
  simulation_->faults.fail_work(n, status);
}

void FakeDriver::disarm() {
  const Simulation::Lock lock(simulation_->mutex);
  simulation_->faults.disarm();
}

bool FakeDriver::fault_struck() const {
  const Simulation::Lock lock(simulation_->mutex);
  return simulation_->faults.struck();
}

cuda::Status FakeDriver::device_count(int* count) {
  Call call(*simulation_, "device_count");
  if (!call.proceeds()) return call.status();
  if (simulation_->options.startup != cuda::success) {
    return call.fail(simulation_->options.startup);
  }
  *count = simulation_->options.devices;
  return call.status();
}

cuda::Status FakeDriver::driver_version(int* version) {
  Call call(*simulation_, "driver_version");
  if (!call.proceeds()) return call.status();
  *version = simulation_->options.driver_version;
  return call.status();
}

cuda::Status FakeDriver::runtime_version(int* version) {
  Call call(*simulation_, "runtime_version");
  if (!call.proceeds()) return call.status();
  *version = simulation_->options.runtime_version;
  return call.status();
}

cuda::Status FakeDriver::properties(int device, cuda::Properties* result) {
  Call call(*simulation_, "properties");
  if (!call.proceeds()) return call.status();
  if (!call.is_device(device)) return call.fail(invalid_device);
  const FakeOptions& options = simulation_->options;
  cuda::Properties properties{.name = fmt::format("Fake GPU {}", device),
                              .major = 9,
                              .minor = 0,
                              .multiprocessors = 132,
                              .copy_engines = 3,
                              .total_bytes = options.device_bytes,
                              .l2_bytes = std::size_t{50} << 20,
                              .shared_bytes = std::size_t{227} << 10,
                              .pci_address = {},
                              .memory_pools = options.memory_pools,
                              .virtual_memory = options.virtual_memory,
                              .stream_wait_value = options.stream_wait_value,
                              .registered_memory = options.registered_memory};
  if (options.adjust) options.adjust(device, properties);
  *result = std::move(properties);
  return call.status();
}

cuda::Status FakeDriver::memory_info(std::size_t* free, std::size_t* total) {
  Call call(*simulation_, "memory_info");
  if (!call.proceeds() || !call.on(call.current())) return call.status();
  const Budget& memory = simulation_->devices[static_cast<std::size_t>(call.current())].memory;
  *free = memory.total - memory.used;
  *total = memory.total;
  return call.status();
}

cuda::Status FakeDriver::set_device(int device) {
  Call call(*simulation_, "set_device");
  if (!call.proceeds()) return call.status();
  if (!call.is_device(device)) return call.fail(invalid_device);
  if (!call.on(device)) return call.status();
  simulation_->caller().device = device;
  return call.status();
}

cuda::Status FakeDriver::get_device(int* device) {
  Call call(*simulation_, "get_device");
  if (!call.proceeds()) return call.status();
  *device = call.current();
  return call.status();
}

cuda::Status FakeDriver::isolate_thread() {
  Call call(*simulation_, "isolate_thread");
  return call.status();
}

cuda::Status FakeDriver::last_error() {
  const Simulation::Lock lock(simulation_->mutex);
  CallerState& caller = simulation_->caller();
  const cuda::Status status = std::exchange(caller.last_error, cuda::success);
  if (simulation_->options.devices == 0) return status;
  const cuda::Status lost = simulation_->devices[static_cast<std::size_t>(caller.device)].lost;
  return lost != cuda::success ? lost : status;
}

const char* FakeDriver::error_name(cuda::Status status) {
  switch (status) {
    case cuda::success:
      return "cudaSuccess";
    case cuda::memory_allocation:
      return "cudaErrorMemoryAllocation";
    case insufficient_driver:
      return "cudaErrorInsufficientDriver";
    case no_device:
      return "cudaErrorNoDevice";
    case cuda::not_ready:
      return "cudaErrorNotReady";
    case illegal_address:
      return "cudaErrorIllegalAddress";
    case launch_failure:
      return "cudaErrorLaunchFailure";
    default:
      return "cudaErrorOfTheFake";
  }
}

const char* FakeDriver::error_meaning(cuda::Status status) {
  return status == cuda::success ? "no error" : "a failure that a test asked for";
}

}  // namespace ps::test
