// Upload and compute through a Pipeline: the work that the rungs on depth and on traps vary.
#pragma once

#include <functional>
#include <optional>

#include "penstock/host/pipeline.h"
#include "support/context.h"

namespace ladder {

struct TwoWayOptions {
  std::size_t depth = 4;
  std::optional<ps::Stream> upload = {}, compute = {};     // the caller's; else the pipeline's own
  std::function<void(ps::Item& item)> after_compute = {};  // enqueued behind each item's compute
};

ps::Pipeline make_two_way(Context& context, TwoWayOptions options);

// Builds the pipeline once and measures its runs.
Row measure_two_way(Context& context, std::string label, TwoWayOptions options);

}  // namespace ladder
