// Blocks on their way from a DiskExpertStore to the device: which are read ahead, and which slots
// of the host cache must stay until they are copied. Used by one thread. Never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "penstock/outofcore/disk_expert_store.h"

namespace ps::detail {

class ExpertReads {
 public:
  using Key = std::int64_t;  // layer * E + expert

  explicit ExpertReads(const DiskExpertStore& store);

  // The blocks that are needed next, in this order; the first ones are read ahead. Blocks that were
  // expected before and are not in the list may be evicted.
  void expect(std::span<const Key> keys, ReadPriority priority);
  // Expects nothing, and holds no slots but those that are being copied from.
  void forget() noexcept;
  // How many blocks are read ahead at most.
  std::size_t window() const { return window_; }

  // The block in host memory; or nothing, while it is being read or there is no slot for it. Throws
  // the error of the read; the next call reads again. A read that was started for something else,
  // in the background or by another user of the store, may fail unless what is expected now is in
  // the background, too: the block is then read again.
  std::optional<MemoryView> find(Key key);

  // The block that find() returned last for `key` is read by copy number `copy`.
  void copied_by(Key key, std::uint32_t copy);
  // Releases the blocks of copies up to this number.
  void release_copied(std::uint32_t copy) noexcept;
  bool copying() const { return !copying_.empty(); }  // whether blocks have not been released

 private:
  struct Pending {
    Key key;
    DiskExpertStore::Block block;
    bool own = false;  // read for a call of this object
  };
  struct Copying {
    std::uint32_t copy;
    DiskExpertStore::Block block;
  };
  std::vector<Pending>::iterator pending(Key key);
  void start_reads();

  const DiskExpertStore& store_;
  const std::size_t window_;
  std::deque<Key> expected_;  // that have no copy yet
  ReadPriority priority_ = ReadPriority::normal;
  std::vector<Pending> pending_;
  std::deque<Copying> copying_;
};

}  // namespace ps::detail
