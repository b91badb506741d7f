// The check of what the arrays of lengths and pages of attention() hold.
#pragma once

#include "ops/attention/work.h"

namespace ps::attending {

// Throws InvalidArgument for sequences that are not inside q and k, and for keys on pages that do
// not exist. The arrays are those of the work, or copies of them that the host can read.
void check_lengths(const detail::AttentionSequences& sequences,
                   const detail::AttentionPages& pages);

}  // namespace ps::attending
