// The fake driver's memory: page-locked, device, pools, and pages mapped behind reserved addresses.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "fake/call.h"
#include "fake/fake_driver.h"
#include "fake/simulation.h"

namespace ps::test {
namespace {

cuda::Status allocate(Simulation& simulation, Call& call, void** data, std::size_t bytes,
                      MemoryKind kind, Budget& budget) {
  if (bytes == 0) return call.fail(invalid_value);
  void* memory = nullptr;
  if (!budget.take(bytes)) return call.fail(cuda::memory_allocation);
  if (posix_memalign(&memory, 4096, bytes) != 0) {
    budget.give(bytes);
    return call.fail(cuda::memory_allocation);
  }
  std::memset(memory, 0xCD, bytes);
  simulation.heap.insert(memory);
  simulation.ledger.add(memory, bytes, kind, call.current());
  *data = memory;
  return call.status();
}

cuda::Status release(Simulation& simulation, Call& call, void* data, Budget& budget) {
  simulation.settle(call.lock());
  std::string complaint = simulation.ledger.still_used(data);
  budget.give(simulation.ledger.bytes_at(data));
  simulation.ledger.remove(data);
  if (!complaint.empty()) return call.wrong(std::move(complaint));  // the bytes stay in the heap
  simulation.heap.erase(data);
  std::free(data);
  return call.status();
}

}  // namespace

cuda::Status FakeDriver::host_alloc(void** data, std::size_t bytes) {
  Call call(*simulation_, "host_alloc");
  if (!call.proceeds() || !call.on(call.current())) return call.status();
  return allocate(*simulation_, call, data, bytes, MemoryKind::pinned, simulation_->pinned);
}

cuda::Status FakeDriver::host_free(void* data) {
  Call call(*simulation_, "host_free", OnFault::acts);
  if (!call.proceeds() || !call.on(call.current())) return call.status();
  if (!simulation_->ledger.holds(data, MemoryKind::pinned)) {
    return call.wrong(fmt::format("host_free of {}, which is not page-locked memory", data));
  }
  return release(*simulation_, call, data, simulation_->pinned);
}

cuda::Status FakeDriver::host_register(void* data, std::size_t bytes) {
  if (simulation_->options.registering) simulation_->options.registering(bytes);
  Call call(*simulation_, "host_register");
  if (!call.proceeds() || !call.on(call.current())) return call.status();
  if (!simulation_->options.registered_memory) {
    return call.wrong("host_register on a device that does not support it", not_supported);
  }
  if (data == nullptr || bytes == 0) return call.fail(invalid_value);
  if (simulation_->ledger.touches(data, bytes)) {
    return call.wrong(fmt::format("host_register of {}, of which a part is page-locked", data),
                      already_registered);
  }
  if (!simulation_->pinned.take(bytes)) return call.fail(cuda::memory_allocation);
  simulation_->ledger.add(data, bytes, MemoryKind::registered, call.current());
  return call.status();
}

cuda::Status FakeDriver::host_unregister(void* data) {
  Call call(*simulation_, "host_unregister", OnFault::acts);
  if (!call.proceeds() || !call.on(call.current())) return call.status();
  if (!simulation_->ledger.holds(data, MemoryKind::registered)) {
    return call.wrong(fmt::format("host_unregister of {}, which is not registered", data),
                      not_registered);
  }
  simulation_->settle(call.lock());
  std::string complaint = simulation_->ledger.still_used(data);
  simulation_->pinned.give(simulation_->ledger.bytes_at(data));
  simulation_->ledger.remove(data);
  return complaint.empty() ? call.status() : call.wrong(std::move(complaint));
}

cuda::Status FakeDriver::device_alloc(void** data, std::size_t bytes) {
  Call call(*simulation_, "device_alloc");
  if (!call.proceeds() || !call.on(call.current())) return call.status();
  return allocate(*simulation_, call, data, bytes, MemoryKind::device,
                  simulation_->devices[static_cast<std::size_t>(call.current())].memory);
}

cuda::Status FakeDriver::device_free(void* data) {
  Call call(*simulation_, "device_free", OnFault::acts);
  if (!call.proceeds()) return call.status();
  if (!simulation_->ledger.holds(data, MemoryKind::device)) {
    return call.wrong(fmt::format("device_free of {}, which is not device memory", data));
  }
  const int device = simulation_->ledger.device_at(data);
  call.on(device);
  return release(*simulation_, call, data,
                 simulation_->devices[static_cast<std::size_t>(device)].memory);
}

cuda::Status FakeDriver::pool_create(cuda::PoolHandle* pool, int device, std::size_t limit) {
  Call call(*simulation_, "pool_create");
  if (!call.proceeds()) return call.status();
  if (!simulation_->options.memory_pools) {
    return call.wrong("pool_create on a device without memory pools", not_supported);
  }
  if (!call.is_device(device)) return call.fail(invalid_device);
  if (!call.on(device)) return call.status();
  void* handle = simulation_->make_handle();
  const FakePool::Settings settings{
      .device = device, .limit = limit, .step = simulation_->options.pool_step};
  simulation_->pools.emplace(
      handle, std::make_shared<FakePool>(
                  settings, simulation_->devices[static_cast<std::size_t>(device)].memory));
  *pool = handle;
  return call.status();
}

cuda::Status FakeDriver::pool_destroy(cuda::PoolHandle pool) {
  Call call(*simulation_, "pool_destroy", OnFault::acts);
  if (!call.proceeds() || !call.pool(pool)) return call.status();
  simulation_->settle(call.lock());
  simulation_->pools.erase(pool);  // blocks that are live or on their way keep it
  return call.status();
}

cuda::Status FakeDriver::pool_set_threshold(cuda::PoolHandle handle, std::uint64_t bytes) {
  Call call(*simulation_, "pool_set_threshold");
  if (!call.proceeds()) return call.status();
  if (const auto pool = call.pool(handle)) pool->set_threshold(bytes);
  return call.status();
}

cuda::Status FakeDriver::pool_trim(cuda::PoolHandle handle, std::size_t keep) {
  Call call(*simulation_, "pool_trim");
  if (!call.proceeds()) return call.status();
  if (const auto pool = call.pool(handle)) pool->shrink(keep);
  return call.status();
}

cuda::Status FakeDriver::pool_use(cuda::PoolHandle handle, cuda::PoolUse* use) {
  Call call(*simulation_, "pool_use");
  if (!call.proceeds()) return call.status();
  if (const auto pool = call.pool(handle)) *use = pool->use();
  return call.status();
}

cuda::Status FakeDriver::pool_alloc(void** data, std::size_t bytes, cuda::PoolHandle handle,
                                    cuda::StreamHandle stream_handle) {
  Call call(*simulation_, "pool_alloc");
  if (!call.proceeds()) return call.status();
  const std::shared_ptr<FakeStream> stream = call.stream(stream_handle);
  const std::shared_ptr<FakePool> pool = stream ? call.pool(handle) : nullptr;
  if (!pool || call.forbidden_in_capture(*stream)) return call.status();
  if (bytes == 0) return call.fail(invalid_value);
  const Operation operation = simulation_->next_operation(*stream, "pool_alloc");
  void* memory = pool->allocate(bytes, operation.clock, simulation_->host);
  if (memory == nullptr) return call.fail(cuda::memory_allocation);
  simulation_->ledger.add(memory, bytes, MemoryKind::pool, pool->device());
  // Whoever uses the memory must follow the allocation, as if it wrote it.
  simulation_->ledger.access(operation, memory, bytes, true);
  simulation_->pool_memory.emplace(memory, pool);
  simulation_->enqueue(*stream,
                       {.body = MemoryWork{.run = [=] { FakePool::open(memory, bytes); }}});
  *data = memory;
  return call.status();
}

cuda::Status FakeDriver::pool_free(void* data, cuda::StreamHandle handle) {
  Call call(*simulation_, "pool_free", OnFault::acts);
  if (!call.proceeds()) return call.status();
  const std::shared_ptr<FakeStream> stream = call.stream(handle);
  if (!stream || call.forbidden_in_capture(*stream)) return call.status();
  const auto found = simulation_->pool_memory.find(data);
  if (found == simulation_->pool_memory.end()) {
    return call.wrong(fmt::format("pool_free of {}, which is not memory of a pool", data));
  }
  const std::shared_ptr<FakePool> pool = found->second;
  simulation_->pool_memory.erase(found);
  const Operation operation = simulation_->next_operation(*stream, "pool_free");
  std::string complaint =
      simulation_->ledger.access(operation, data, simulation_->ledger.bytes_at(data), true);
  simulation_->ledger.remove(data);
  if (!complaint.empty() || call.is_lost(stream->device)) {
    pool->abandon(data);
    if (!complaint.empty()) simulation_->violation(std::move(complaint));
    return call.status();
  }
  pool->free(data, stream->number, operation.tick);
  const std::size_t capacity = pool->capacity(data);
  simulation_->enqueue(*stream,
                       {.body = MemoryWork{.run = [=] { FakePool::fill_freed(data, capacity); }},
                        .finished = [pool, data, number = stream->number, tick = operation.tick] {
                          pool->reached(data, number, tick);
                        }});
  return call.status();
}

cuda::Status FakeDriver::address_granularity(int device, std::size_t* bytes) {
  Call call(*simulation_, "address_granularity");
  if (!call.proceeds()) return call.status();
  if (!call.is_device(device)) return call.fail(invalid_device);
  if (call.on(device)) *bytes = simulation_->addresses.granularity();
  return call.status();
}

cuda::Status FakeDriver::address_reserve(void** address, std::size_t bytes) {
  Call call(*simulation_, "address_reserve");
  if (!call.proceeds() || !call.on(call.current())) return call.status();
  if (!simulation_->options.virtual_memory) {
    return call.wrong("address_reserve on a device that cannot map memory", not_supported);
  }
  return call.conclude(simulation_->addresses.reserve(address, bytes));
}

cuda::Status FakeDriver::address_free(void* address, std::size_t bytes) {
  Call call(*simulation_, "address_free", OnFault::acts);
  if (!call.proceeds() || !call.on(call.current())) return call.status();
  return call.conclude(simulation_->addresses.free(address, bytes));
}

cuda::Status FakeDriver::memory_create(cuda::MemoryHandle* memory, std::size_t bytes, int device) {
  Call call(*simulation_, "memory_create");
  if (!call.proceeds()) return call.status();
  if (!call.is_device(device)) return call.fail(invalid_device);
  if (!call.on(device)) return call.status();
  return call.conclude(simulation_->addresses.create(
      memory, bytes, device, simulation_->devices[static_cast<std::size_t>(device)].memory));
}

cuda::Status FakeDriver::memory_release(cuda::MemoryHandle memory) {
  Call call(*simulation_, "memory_release", OnFault::acts);
  if (!call.proceeds() || !call.on(call.current())) return call.status();
  return call.conclude(simulation_->addresses.release(memory));
}

cuda::Status FakeDriver::memory_map(void* address, std::size_t bytes, cuda::MemoryHandle memory,
                                    int device) {
  Call call(*simulation_, "memory_map");
  if (!call.proceeds()) return call.status();
  if (!call.is_device(device)) return call.fail(invalid_device);
  if (!call.on(device)) return call.status();
  auto result = simulation_->addresses.map(address, bytes, memory, device);
  if (result.ok()) simulation_->ledger.add(address, bytes, MemoryKind::mapped, device);
  return call.conclude(std::move(result));
}

cuda::Status FakeDriver::memory_unmap(void* address, std::size_t bytes) {
  Call call(*simulation_, "memory_unmap", OnFault::acts);
  if (!call.proceeds() || !call.on(call.current())) return call.status();
  simulation_->settle(call.lock());
  auto result = simulation_->addresses.may_unmap(address, bytes);
  if (!result.ok()) return call.conclude(std::move(result));
  auto* begin = static_cast<std::byte*>(address);
  for (std::byte* piece = begin; piece != begin + bytes;) {
    const std::size_t piece_bytes = simulation_->ledger.bytes_at(piece);
    std::string complaint = simulation_->ledger.still_used(piece);
    if (!complaint.empty()) return call.wrong(std::move(complaint));
    simulation_->ledger.remove(piece);
    simulation_->addresses.unmap(piece);
    piece += piece_bytes;
  }
  return call.status();
}

}  // namespace ps::test
