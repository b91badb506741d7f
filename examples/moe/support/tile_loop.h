// What the roles of a matrix product's blocks did, as shares of the time and as a part of the trace
// that fits on a page. The trace is one of the kit's engine (kit/gemm/trace.cuh): role 0 loads,
// odd roles multiply, the even ones behind them store. The number of a span is a step along K,
// counted by each block from its first tile on; stores have the number of their tile's last step.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/trace/kernel_trace.h"

namespace ladder::moe {

// The names of these roles, for two consumers.
std::vector<std::string> role_names();

// Shares of the time from a block's first load to its last store, over all blocks.
struct LoopShares {
  double products = 0;  // the tensor cores had at least one product
  double loads = 0;     // at least one load was in flight
  double stores = 0;    // at least one consumer stored
  double hidden = 0;    // the share of the stores' time in which a load or a product was in flight
};

LoopShares loop_shares(const ps::KernelRoles& roles);

// "up: the tensor cores worked 90.1 % of the time, ..."
std::string as_sentence(std::string_view product, const LoopShares& shares);

// The trace of `block` while it computed `tiles` consecutive tiles from the middle of its work, or
// all of them if it had fewer: whole spans, with times from 0 on. A tile has `steps` steps.
ps::KernelRoles middle_tiles(const ps::KernelRoles& roles, unsigned block, unsigned steps,
                             unsigned tiles);

}  // namespace ladder::moe
