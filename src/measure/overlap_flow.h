// The pipeline that overlap is measured with: the yardstick's items, cut into chunks, through the
// engines of two-, three- or four-way work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "penstock/host/pipeline.h"
#include "penstock/measure/overlap.h"

namespace ps::detail {

struct FlowOptions {
  Ways ways = Ways::three;
  std::size_t item_bytes = 0, chunk = 0, depth = 4;
  int rounds = 1;
  // Everything in one stream: nothing overlaps.
  bool sequential = false;
};

class OverlapFlow {
 public:
  OverlapFlow(const Yardstick& yardstick, const FlowOptions& options);
  OverlapFlow(const OverlapFlow&) = delete;
  OverlapFlow& operator=(const OverlapFlow&) = delete;

  std::size_t chunks() const { return chunks_; }
  const Device& device() const { return yardstick_.device(); }

  // Blocks until all is done; throws Cancelled.
  RunReport run(Recorder* recorder, const std::stop_token& stop);

  // On poisoned memory, then checks what arrived.
  void run_checked(const std::stop_token& stop);

 private:
  MemoryView piece(MemoryView whole, std::uint64_t chunk) const;
  MemoryView slot(const Item& item, RingId ring) const;
  StageOptions stage(Engine engine, std::optional<StageId> after, std::vector<RingId> uses) const;

  const Yardstick& yardstick_;
  FlowOptions options_;
  std::size_t chunks_per_item_, chunks_;
  std::optional<Stream> common_;
  Pipeline pipeline_;
};

}  // namespace ps::detail
