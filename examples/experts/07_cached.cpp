// Experts that stay on the device need no load: the fewer there are to load, the shorter the pass,
// until the products are the slower part.
#include <fmt/format.h>

#include <algorithm>

#include "experts/support/layers.h"

namespace {

std::vector<ladder::Row> run(ladder::Context& context) {
  auto& layers = context.shared<ladder::Layers>();
  const std::size_t all = layers.experts().size();
  std::vector<ladder::Row> rows;
  for (const std::size_t cached : {std::size_t{0}, all / 8, all / 4, all / 2}) {
    const std::size_t held = std::min(cached, layers.work().resident());
    rows.push_back(layers.measure_pipeline(fmt::format("{} of {} experts stay", held, all), held));
  }
  return rows;
}

PENSTOCK_RUNG("cached", "Experts that are cached on the device need not be loaded.", run);

}  // namespace
