#include "outofcore/expert_staging.h"

#include <cstdint>
#include <utility>

#include "penstock/base/checked.h"
#include "penstock/outofcore/compressed_expert_store.h"

namespace ps::detail {
namespace {

// One that is copied to and one that is decompressed. The others keep the link busy when a
// decompression has to wait for a slot that is still being read.
constexpr std::size_t buffers = 4;

// As many as 16 multiprocessors hold. They decompress faster than a link of 64 GB/s delivers, and
// leave most of the GPU to the products of the experts that are there.
constexpr int thread_blocks = 96;

std::size_t buffer_bytes(const ExpertShape& shape) {
  return align_up(CompressedExpertStore::most_block_bytes(shape), 256, "shape");
}

}  // namespace

std::size_t ExpertStaging::device_bytes(const ExpertShape& shape) {
  return buffers * buffer_bytes(shape);
}

ExpertStaging::ExpertStaging(const Device& device, MemoryView memory,
                             std::shared_ptr<ExpertSteps> steps)
    : steps_(std::move(steps)) {
  const std::size_t each = memory.bytes / buffers;
  for (std::size_t i = 0; i < buffers; ++i) {
    buffers_.push_back({memory.sub(i * each, each), Event(device), Event(device)});
  }
  steps_->load_decompress(device);
}

void ExpertStaging::bring(MemoryView slot, MemoryView compressed, const Stream& copies,
                          const Stream& fills) {
  const Buffer& buffer = buffers_[next_++ % buffers_.size()];
  const MemoryView there = buffer.memory.sub(0, compressed.bytes);
  copies.wait(buffer.read);
  copy(there, compressed, copies);
  copies.record(buffer.arrived);
  fills.wait(buffer.arrived);
  const auto bytes = static_cast<std::int64_t>(there.bytes);
  const auto elements = static_cast<std::int64_t>(slot.bytes / size_of(DType::bf16));
  steps_->decompress({.compressed = TensorView(there.data, DType::u8, {bytes}, there.place),
                      .out = TensorView(slot.data, DType::bf16, {elements}, slot.place),
                      .thread_blocks = thread_blocks},
                     fills);
  fills.record(buffer.read);
}

}  // namespace ps::detail
