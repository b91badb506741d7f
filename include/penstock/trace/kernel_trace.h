// Reads the trace that a kernel wrote with kit/trace.cuh: what each role of each block did and
// when. Every multiprocessor has its own clock. Samples of that clock and of the GPU's global
// timer, taken together, put all clocks on one axis of nanoseconds; ClockError says how well they
// fit.
//
//   const ps::KernelTrace trace(downloaded, {"loader", "compute", "storer"});
//   const ps::Span kernel{entry.begin_ns, entry.end_ns};
//   const ps::KernelRoles roles = trace.roles({.inside = kernel});
//   std::puts(ps::describe(roles).c_str());  // "clocks aligned to within 41 ns (median ..."
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

// One piece of work of a role.
struct RoleSpan {
  unsigned block = 0;
  unsigned sm = 0;    // the multiprocessor that the block ran on
  unsigned role = 0;  // index into KernelRoles::names
  std::uint64_t tile = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// How far the samples (pairs of clock and timer) lie from the lines fitted to them. Samples are
// taken where blocks begin and end, so a change of clock rate that cancels out in between goes
// unnoticed.
struct ClockError {
  double max_ns = 0;
  double median_ns = 0;
};

// The part of a trace that was asked for.
struct KernelRoles {
  std::vector<std::string> names{};  // of the roles
  std::vector<RoleSpan> spans{};     // sorted by begin
  Span kernel{};                     // of all traced blocks, including those not asked for
  ClockError error{};
  double place_ns = 0;  // the trace may be shifted by this much, either way, in the outer timeline
  std::uint64_t lost = 0;  // records of these blocks that did not fit into the buffer
};

// "clocks aligned to within 41 ns (median 12 ns), placed to within 900 ns, 3 records did not fit".
std::string describe(const KernelRoles& roles);

// Records every span as an interval of compute, with stage "block 4, loader" and the tile as item.
void record_roles(const KernelRoles& roles, Recorder& recorder);
[[deprecated("use record_roles")]] inline void tell(const KernelRoles& roles, Recorder& recorder) {
  record_roles(roles, recorder);
}

struct KernelTraceOptions {
  std::vector<unsigned> blocks{};  // empty: the first `most_blocks` blocks of multiprocessor `sm`
  std::optional<unsigned> sm{};    // empty: the first multiprocessor that has records
  std::size_t most_blocks = 8;
  // The kernel's interval in an outer timeline. The trace is shifted into it, never stretched: to
  // its middle, or to its begin if only the first blocks of the grid were traced. Without it, times
  // count from the begin of the first traced block.
  std::optional<Span> inside{};
};

class KernelTrace {
 public:
  struct Block {
    unsigned block = 0;
    unsigned sm = 0;
    bool aligned = false;  // false if its multiprocessor has too few samples; then all times are 0
    Span span{};           // in nanoseconds from the first begin of all blocks
    std::uint64_t records = 0;
    std::uint64_t lost = 0;
  };

  // Reads the buffer that the kernel wrote. `roles` names the roles, in the order of their numbers.
  // Throws InvalidArgument if the buffer is truncated, was not written by a traced kernel, holds
  // impossible values, or if its clocks cannot be aligned.
  KernelTrace(std::span<const std::byte> buffer, std::vector<std::string> roles);

  const std::vector<Block>& blocks() const { return blocks_; }  // the traced ones, in order
  std::uint64_t grid() const { return grid_; }                  // blocks in the grid, traced or not
  const ClockError& error() const { return error_; }
  std::size_t pairs() const { return pairs_; }       // samples used to align the clocks
  std::int64_t tick_ns() const { return tick_ns_; }  // the timer's smallest step that was seen
  const Span& span() const { return span_; }         // of all blocks; begins at 0

  // Throws InvalidArgument if a block or multiprocessor that was asked for has no aligned trace, or
  // if `inside` is shorter than the trace by more than the clocks' error.
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
