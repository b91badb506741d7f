// What the roles inside one kernel did and when, from the trace that the kernel wrote itself
// (kit/trace.h). Every multiprocessor counts by a clock of its own; pairs of that clock and of the
// timer that all of them share put them on one axis of nanoseconds, and how well they fit is told.
//
//   const ps::KernelTrace trace(downloaded, {"loader", "compute", "storer"});
//   const ps::KernelRoles roles = trace.roles({.inside = ps::Span{kernel.begin_ns,
//   kernel.end_ns}}); std::puts(ps::describe(roles).c_str());  // "clocks aligned to within 41 ns
//   (median 12 ns), ..."
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/base/recorder.h"
#include "penstock/trace/timeline.h"

namespace ps {

// One thing that a role did.
struct RoleSpan {
  unsigned block = 0;
  unsigned sm = 0;    // the multiprocessor that the block ran on
  unsigned role = 0;  // by number
  std::uint64_t tile = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// How far the clocks' pairs lie from the lines that align them. The pairs are where blocks begin
// and end: a clock that is faster for a while in between, and then as slow, would not show.
struct ClockError {
  double max_ns = 0;
  double median_ns = 0;
};

// The part of a trace that is shown.
struct KernelRoles {
  std::vector<std::string> names{};  // of the roles, by number
  std::vector<RoleSpan> spans{};     // sorted by begin
  Span kernel{};                     // of all traced blocks, also of those not shown
  ClockError error{};
  double place_ns = 0;     // how far off, either way, the whole may be inside the kernel's interval
  std::uint64_t lost = 0;  // records of these blocks that did not fit
};

// "clocks aligned to within 41 ns (median 12 ns), placed to within 900 ns, 3 records did not fit".
std::string describe(const KernelRoles& roles);

// Records every span as compute's, with "block 4, loader" as its stage and the tile as its item.
void tell(const KernelRoles& roles, Recorder& recorder);

struct KernelTraceOptions {
  std::vector<unsigned> blocks{};  // by number; none: the first `most_blocks` of one multiprocessor
  std::optional<unsigned> sm{};    // which one; none: the first that has records
  std::size_t most_blocks = 8;
  // The kernel's interval in an outer timeline. The trace is moved into it, never stretched: to its
  // middle, or to its begin where only the first blocks of the grid were traced. Without it, times
  // count from the first traced block's begin.
  std::optional<Span> inside{};
};

class KernelTrace {
 public:
  struct Block {
    unsigned block = 0;
    unsigned sm = 0;
    bool aligned = false;  // false where its multiprocessor has too few pairs; its times are then 0
    Span span{};           // in nanoseconds from the first begin of all
    std::uint64_t records = 0;
    std::uint64_t lost = 0;
  };

  // Reads a buffer as the kernel left it. `roles` names the roles by number. Throws InvalidArgument
  // on one that is cut off, that no kernel wrote, whose numbers make no sense, or whose clocks
  // cannot be aligned.
  KernelTrace(std::span<const std::byte> buffer, std::vector<std::string> roles);

  const std::vector<Block>& blocks() const { return blocks_; }  // that left a trace, in order
  std::uint64_t grid() const { return grid_; }                  // blocks of the grid, traced or not
  const ClockError& error() const { return error_; }
  std::size_t pairs() const { return pairs_; }       // that the clocks were aligned by
  std::int64_t tick_ns() const { return tick_ns_; }  // of the shared timer, as far as was seen
  const Span& span() const { return span_; }         // of all blocks: from 0 on

  // Throws InvalidArgument on a block or multiprocessor without an aligned trace, and on an
  // interval that is shorter than the trace by more than the clocks' error.
  KernelRoles roles(const KernelTraceOptions& options = {}) const;

 private:
  std::vector<unsigned> chosen(const KernelTraceOptions& options) const;
  const Block* aligned_block(unsigned number) const;

  std::vector<std::string> names_;
  std::vector<Block> blocks_;
  std::vector<RoleSpan> spans_;  // of aligned blocks
  std::uint64_t grid_ = 0;
  ClockError error_;
  std::size_t pairs_ = 0;
  std::int64_t tick_ns_ = 0;
  Span span_;
};

}  // namespace ps
