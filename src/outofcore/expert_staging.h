// Compressed experts on their way to slots: copied to buffers on the device, and decompressed from
// there while the next ones are copied. Used by one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "outofcore/expert_steps.h"
#include "penstock/base/view.h"
#include "penstock/host/event.h"
#include "penstock/host/stream.h"
#include "penstock/outofcore/expert_store.h"

namespace ps::detail {

class ExpertStaging {
 public:
  // Bytes of device memory.
  static std::size_t device_bytes(const ExpertShape& shape);

  // In memory of device_bytes(shape) bytes. Loads what decompresses.
  ExpertStaging(const Device& device, MemoryView memory, std::shared_ptr<ExpertSteps> steps);

  // Enqueues the copy of a compressed block on `copies`, and its decompression into `slot` on
  // `fills`. If it throws, what was enqueued may still use the slot and a buffer: drain both
  // streams.
  void bring(MemoryView slot, MemoryView compressed, const Stream& copies, const Stream& fills);

 private:
  struct Buffer {
    MemoryView memory;
    Event arrived, read;
  };

  const std::shared_ptr<ExpertSteps> steps_;
  std::vector<Buffer> buffers_;
  std::size_t next_ = 0;
};

}  // namespace ps::detail
