#include "outofcore/expert_call.h"

#include <cstring>

#include "penstock/base/checked.h"

namespace ps::detail {
namespace {

std::size_t aligned(std::size_t bytes) { return align_up(bytes, 256, "calls_in_flight"); }

// Offsets in the page-locked memory of one call. What the device writes is apart from what the host
// writes.
struct Parts {
  std::size_t rows = 0, routed, flags, maps, end;

  explicit Parts(std::int64_t experts) {
    const auto words = static_cast<std::size_t>(experts) * 4;
    routed = aligned(words);
    flags = routed + 256;
    maps = flags + aligned(most_expert_groups * 4);
    end = maps + aligned(most_expert_groups * words);
  }
};

}  // namespace

std::size_t ExpertCalls::device_bytes(std::size_t calls, std::int64_t experts) {
  return calls * aligned(static_cast<std::size_t>(experts) * 4);
}

ExpertCalls::ExpertCalls(const Device& device, MemoryView device_memory, std::size_t calls,
                         std::int64_t experts)
    : pinned_(device, calls * Parts(experts).end) {
  const Parts parts(experts);
  std::memset(pinned_.view().data, 0, pinned_.bytes());
  for (std::size_t i = 0; i < calls; ++i) {
    ExpertCall& call = calls_.emplace_back(device);
    std::byte* memory = pinned_.view().data + i * parts.end;
    call.rows = reinterpret_cast<std::uint32_t*>(memory + parts.rows);
    call.routed = reinterpret_cast<std::uint32_t*>(memory + parts.routed);
    call.flags = reinterpret_cast<std::uint32_t*>(memory + parts.flags);
    call.maps = reinterpret_cast<std::int32_t*>(memory + parts.maps);
    const MemoryView map =
        device_memory.sub(i * device_bytes(1, experts), device_bytes(1, experts));
    call.slots = TensorView(map.data, DType::i32, {experts}, map.place);
  }
}

}  // namespace ps::detail
