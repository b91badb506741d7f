// The problem as arguments of the library's own operator.
#pragma once

#include "decode/support/problem.h"
#include "penstock/base/place.h"
#include "penstock/ops/attention.h"

namespace ladder::decode {

// `place`: where the problem's memory is.
ps::AttentionOptions library_options(const Problem& p, ps::Place place);

}  // namespace ladder::decode
