// The experts of all layers of a model in host memory, compressed without loss, so that fewer bytes
// pass the link.
//
//   ps::CompressedExpertStore store(gpu, {.layers = 48, .experts = 128, .hidden = 2048, ...});
//   std::vector<std::byte> block(ps::ExpertStore::block_bytes(store.shape()));
//   ...                                   // fill ps::ExpertStore::views(store.shape(), block)
//   store.set(layer, expert, {block.data(), block.size(), {}});   // for every expert
//   ps::StreamedExperts experts({.compressed = &store, .device = gpu, .device_bytes = ...});
//
// penstock/ops/compress.h says what becomes smaller. Normally distributed weights take 0.67 of
// their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "penstock/base/view.h"
#include "penstock/host/device.h"
#include "penstock/outofcore/expert_store.h"

namespace ps {

// Thread-safe. Compressed blocks follow each other in the order of the calls of set(), each at a
// multiple of 64 bytes.
class CompressedExpertStore {
 public:
  // Reserves addresses. Page-locked memory (ordinary memory on the CPU device) is taken while the
  // store is filled: what the compressed blocks need, and at most one uncompressed block and two
  // pieces more. A piece is 1/128 of the uncompressed experts, but at least 2 MiB and at most 128
  // MiB. Throws InvalidArgument naming the field of `shape`, Unsupported if its dtype is not bf16,
  // and OutOfMemory if there are no such addresses.
  CompressedExpertStore(const Device& device, const ExpertShape& shape);
  ~CompressedExpertStore();
  CompressedExpertStore(const CompressedExpertStore&) = delete;
  CompressedExpertStore& operator=(const CompressedExpertStore&) = delete;

  const ExpertShape& shape() const;

  // Compresses the block of an expert: ExpertStore::block_bytes(shape) bytes of host memory, which
  // may be used again afterwards. Uses all cores, and blocks until done; one call works at a time.
  // Throws InvalidArgument naming `layer`, `expert` or `block`, also for an expert that is set
  // already, and OutOfMemory if no more memory can be locked. The store is then unchanged.
  void set(std::int64_t layer, std::int64_t expert, MemoryView block);

  std::int64_t count() const;  // experts that are set
  bool complete() const { return count() == shape().layers * shape().experts; }
  std::size_t bytes() const;         // of the compressed blocks so far
  std::size_t locked_bytes() const;  // memory taken so far

  // The compressed block of an expert, as compress() wrote it. Throws InvalidArgument naming
  // `layer` or `expert`, also if the expert is not set.
  MemoryView block(std::int64_t layer, std::int64_t expert) const;

  // The most bytes that a compressed block of this shape takes. Throws as the constructor.
  static std::size_t most_block_bytes(const ExpertShape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ps
