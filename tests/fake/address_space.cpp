#include "fake/address_space.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ps::test {

AddressSpace::~AddressSpace() {
  for (const auto& [address, reservation] : reservations_) {
    munmap(reservation.whole, reservation.whole_bytes);
  }
}

AddressSpace::Result AddressSpace::reserve(void** address, std::size_t bytes) {
  if (bytes == 0 || bytes % granularity_ != 0) {
    return {
        fmt::format("address_reserve of {} bytes, which is not a multiple of the granularity {}",
                    bytes, granularity_)};
  }
  const std::size_t whole_bytes = bytes + granularity_;
  void* whole =
      mmap(nullptr, whole_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (whole == MAP_FAILED) return {.out_of_memory = true};
  auto* begin = static_cast<std::byte*>(whole);
  begin += (granularity_ - reinterpret_cast<std::uintptr_t>(whole) % granularity_) % granularity_;
  reservations_.emplace(begin, Reservation{bytes, whole, whole_bytes});
  *address = begin;
  return {};
}

AddressSpace::Result AddressSpace::free(void* address, std::size_t bytes) {
  auto* begin = static_cast<std::byte*>(address);
  const auto found = reservations_.find(begin);
  if (found == reservations_.end() || found->second.bytes != bytes) {
    return {
        fmt::format("address_free of {} bytes at {} that were not reserved so", bytes, address)};
  }
  if (touches_mapping(begin, bytes)) {
    return {fmt::format("address_free of {} while memory is mapped there", address)};
  }
  munmap(found->second.whole, found->second.whole_bytes);
  reservations_.erase(found);
  return {};
}

AddressSpace::Result AddressSpace::create(cuda::MemoryHandle* memory, std::size_t bytes, int device,
                                          Budget& budget) {
  if (bytes == 0 || bytes % granularity_ != 0) {
    return {fmt::format("memory_create of {} bytes, which is not a multiple of the granularity {}",
                        bytes, granularity_)};
  }
  if (!budget.take(bytes)) return {.out_of_memory = true};
  *memory = next_++;
  memories_.emplace(*memory, Physical{.bytes = bytes, .device = device, .budget = &budget});
  return {};
}

void AddressSpace::drop_if_unused(cuda::MemoryHandle memory) {
  const auto found = memories_.find(memory);
  if (!found->second.released || found->second.mapped) return;
  found->second.budget->give(found->second.bytes);
  memories_.erase(found);
}

AddressSpace::Result AddressSpace::release(cuda::MemoryHandle memory) {
  const auto found = memories_.find(memory);
  if (found == memories_.end() || found->second.released) {
    return {fmt::format("memory_release of handle {}, which is not held", memory)};
  }
  found->second.released = true;
  drop_if_unused(memory);
  return {};
}

bool AddressSpace::inside_reservation(const std::byte* address, std::size_t bytes) const {
  return std::any_of(reservations_.begin(), reservations_.end(), [&](const auto& entry) {
    return entry.first <= address && address + bytes <= entry.first + entry.second.bytes;
  });
}

bool AddressSpace::touches_mapping(const std::byte* address, std::size_t bytes) const {
  return std::any_of(mappings_.begin(), mappings_.end(), [&](const auto& entry) {
    return entry.first < address + bytes && address < entry.first + entry.second.bytes;
  });
}

AddressSpace::Result AddressSpace::map(void* address, std::size_t bytes, cuda::MemoryHandle memory,
                                       int device) {
  auto* begin = static_cast<std::byte*>(address);
  if (bytes == 0 || bytes % granularity_ != 0 ||
      reinterpret_cast<std::uintptr_t>(address) % granularity_ != 0) {
    return {fmt::format("memory_map of {} bytes at {}: not a multiple of the granularity {}", bytes,
                        address, granularity_)};
  }
  if (!inside_reservation(begin, bytes)) {
    return {fmt::format("memory_map at {}, which is not reserved", address)};
  }
  if (touches_mapping(begin, bytes)) {
    return {fmt::format("memory_map at {}, where memory is mapped already", address)};
  }
  const auto found = memories_.find(memory);
  if (found == memories_.end() || found->second.released || found->second.mapped ||
      found->second.bytes != bytes) {
    return {fmt::format("memory_map of handle {}, which is not free memory of {} bytes", memory,
                        bytes)};
  }
  if (found->second.device != device) {
    return {fmt::format("memory_map of handle {} of device {} for device {}", memory,
                        found->second.device, device)};
  }
  if (mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) return {.out_of_memory = true};
  std::memset(begin, 0xCD, bytes);
  found->second.mapped = true;
  mappings_.emplace(begin, Mapping{bytes, memory});
  return {};
}

AddressSpace::Result AddressSpace::may_unmap(void* address, std::size_t bytes) const {
  auto* begin = static_cast<std::byte*>(address);
  const std::byte* end = begin + bytes;
  auto mapping = mappings_.find(begin);
  while (begin < end && mapping != mappings_.end() && mapping->first == begin) {
    begin += mapping->second.bytes;
    ++mapping;
  }
  if (begin == end && bytes != 0) return {};
  return {fmt::format("memory_unmap of {} bytes at {} that were not mapped so", bytes, address)};
}

void AddressSpace::unmap(void* address) {
  const auto found = mappings_.find(static_cast<std::byte*>(address));
  madvise(found->first, found->second.bytes, MADV_DONTNEED);
  mprotect(found->first, found->second.bytes, PROT_NONE);
  const cuda::MemoryHandle memory = found->second.memory;
  memories_.at(memory).mapped = false;
  mappings_.erase(found);
  drop_if_unused(memory);
}

std::size_t AddressSpace::memories() const {
  return static_cast<std::size_t>(
      std::count_if(memories_.begin(), memories_.end(),
                    [](const auto& entry) { return !entry.second.released; }));
}

}  // namespace ps::test
