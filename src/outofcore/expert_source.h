// Where StreamedExperts gets its experts from.
#pragma once

#include "penstock/outofcore/experts.h"

namespace ps::detail {

// The shape of whichever store is set.
inline const ExpertShape& shape_of(const StreamedExpertsOptions& options) {
  if (options.disk != nullptr) return options.disk->shape();
  if (options.compressed != nullptr) return options.compressed->shape();
  return options.store->shape();
}

}  // namespace ps::detail
