// The experts of all layers of a model in host memory, in the form in which they are streamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/base/view.h"
#include "penstock/host/device.h"
#include "penstock/host/pinned_arena.h"
#include "penstock/ops/moe.h"

namespace ps {

// The sizes that all experts of a model share, and how their weights are stored.
struct ExpertShape {
  std::int64_t layers = 0;
  std::int64_t experts = 0;  // E, of each layer; at most 1024
  std::int64_t hidden = 0;   // d, a multiple of 8
  std::int64_t width = 0;    // n, a multiple of 8
  DType dtype = DType::bf16;
  GateUpLayout layout = GateUpLayout::concatenated;
  // Whether the weights are stored as (d, 2n) and (n, d), as in gpt-oss.
  bool transposed = false;
  bool gate_up_bias = false, down_bias = false;
};

// The weights of one expert: (2n, d) and (d, n), with swapped strides if the shape is `transposed`;
// biases (2n) and (d), empty if the shape has none.
struct ExpertViews {
  TensorView gate_up, down, gate_up_bias, down_bias;
};

// One block of host memory per expert: gate_up, down and the biases, one after the other. All
// blocks have the same size and follow each other by layer and expert, so that an expert is one
// copy, and a layer is one range of memory.
class ExpertStore {
 public:
  // Takes page-locked memory (ordinary memory on the CPU device), in huge pages and in the
  // background; blocks can be filled while later ones are still being locked. Throws
  // InvalidArgument naming the field of `shape`, OutOfMemory.
  ExpertStore(const Device& device, const ExpertShape& shape);
  // In the caller's memory of bytes_needed(shape) bytes, aligned to 256, that lives as long as the
  // store. For GPUs it must be page-locked. Throws InvalidArgument.
  ExpertStore(MemoryView memory, const ExpertShape& shape);

  // layers * experts * block_bytes(). A block is at most 1 % larger than its contents if these have
  // 400 kB or more.
  static std::size_t bytes_needed(const ExpertShape& shape);
  static std::size_t block_bytes(const ExpertShape& shape);

  const ExpertShape& shape() const { return shape_; }
  std::size_t block_bytes() const { return block_bytes_; }
  std::size_t bytes() const { return memory_.bytes; }

  // The block of an expert. Blocks until its memory is there. Throws InvalidArgument naming `layer`
  // or `expert`, and OutOfMemory if the memory could not be locked.
  MemoryView block(std::int64_t layer, std::int64_t expert) const;

  // Views of an expert's weights, for filling them.
  TensorView gate_up(std::int64_t layer, std::int64_t expert) const;
  TensorView down(std::int64_t layer, std::int64_t expert) const;
  TensorView gate_up_bias(std::int64_t layer, std::int64_t expert) const;
  TensorView down_bias(std::int64_t layer, std::int64_t expert) const;

  // The same in any block of block_bytes(shape) bytes.
  static ExpertViews views(const ExpertShape& shape, MemoryView block);

  // Sets the weight arguments of moe() to `count` blocks that follow each other from `first` on.
  static void set_weights(const ExpertShape& shape, MemoryView first, std::int64_t count,
                          MoeOptions& options);

 private:
  ExpertShape shape_;
  std::size_t block_bytes_;
  std::shared_ptr<PinnedArena> arena_;
  MemoryView memory_{};
};

}  // namespace ps
