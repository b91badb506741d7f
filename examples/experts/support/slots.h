// Slots in device memory that experts are loaded into, with the events that order streams.
#pragma once

#include <cstddef>
#include <vector>

#include "experts/support/layers.h"
#include "penstock/host/buffer.h"
#include "penstock/host/event.h"

namespace ladder {

struct ExpertSlot {
  ExpertSlot(const ps::Device& device, std::size_t bytes)
      : memory(device, bytes), loaded(device), free(device) {}

  ps::DeviceBuffer memory;
  ps::Event loaded, free;
};

inline std::vector<ExpertSlot> make_slots(const Context& context, std::size_t count,
                                          std::size_t bytes) {
  std::vector<ExpertSlot> slots;
  for (std::size_t i = 0; i < count; ++i) slots.emplace_back(context.device(), bytes);
  return slots;
}

}  // namespace ladder
