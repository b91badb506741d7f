// The experts of a model on a disk, with a cache of them in host memory.
//
//   const ps::DiskExpertStore store(gpu, "qwen3.experts", {.host_bytes = 16 * ps::GiB});
//   ps::StreamedExperts experts({.disk = &store, .device = gpu, .device_bytes = 20 * ps::GiB});
//
// expert_file.h describes the file. Blocks are read past the page cache into slots of the cache,
// with many reads in flight, and copied to the GPU from there. On the CPU device, experts are
// computed from the slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "penstock/base/view.h"
#include "penstock/host/cache_policy.h"
#include "penstock/host/device.h"
#include "penstock/host/slot_cache.h"
#include "penstock/host/storage.h"
#include "penstock/outofcore/expert_file.h"

namespace ps {

struct DiskExpertStoreOptions {
  // Host memory to use, for slots of one block each; at least two blocks. More than all experts
  // need is not taken.
  std::size_t host_bytes = 0;
  // What the cache evicts; null: frequency_policy(). The key of an expert is layer * E + expert.
  std::unique_ptr<CachePolicy> policy{};
  FileQueueOptions queue{};
  bool direct = true;  // bypass the page cache if the file system allows it
};

// Thread-safe. Several StreamedExperts may share one store.
class DiskExpertStore {
 public:
  // A block that is in the cache, or being read. It stays in the cache while a handle exists.
  // Move-only; use one handle from one thread at a time, and drop it before the store.
  class Block {
   public:
    Block(Block&&) noexcept;
    Block& operator=(Block&&) noexcept;
    ~Block();

    MemoryView view() const;
    std::size_t slot() const;  // the block is at slot() * block_bytes() of memory()
    bool hit() const;          // false: the read was started for this handle
    // Whether the contents are there. Never blocks. Throws the error of a failed read.
    bool ready() const;

   private:
    friend class DiskExpertStore;
    struct State;
    explicit Block(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
  };

  // Takes the memory of the cache, page-locked for a GPU. Throws InvalidArgument naming the option,
  // or the path if it is not a complete file of packed experts; SystemError, OutOfMemory.
  DiskExpertStore(const Device& device, const std::filesystem::path& path,
                  DiskExpertStoreOptions options);
  // Cancels reads that have not started and waits for the others.
  ~DiskExpertStore();
  DiskExpertStore(const DiskExpertStore&) = delete;
  DiskExpertStore& operator=(const DiskExpertStore&) = delete;

  const ExpertFileInfo& file() const;
  const ExpertShape& shape() const { return file().shape; }
  std::size_t block_bytes() const;
  bool direct() const;  // whether reads bypass the page cache

  std::size_t slots() const;       // experts that fit into the cache; at most 8192
  std::size_t host_bytes() const;  // slots() * block_bytes()
  MemoryView memory() const;       // all slots

  // The block of an expert; starts to read it if it is not in the cache. Returns nothing if all
  // slots are in use. A read fails with a SystemError if the file was truncated or changed after it
  // was opened, as far as size and time of modification show, or cannot be read; a later call reads
  // again. Does not block. Throws InvalidArgument naming `layer` or `expert`.
  std::optional<Block> try_block(std::int64_t layer, std::int64_t expert,
                                 ReadPriority priority = ReadPriority::normal) const;
  // Whether the block is in the cache, or being read.
  bool cached(std::int64_t layer, std::int64_t expert) const;

  SlotCacheStatistics statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ps
