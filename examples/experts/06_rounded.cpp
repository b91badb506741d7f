// Routes whose tokens per expert are rounded to multiples of the tile: the products then pad no
// rows. The loads stay the same, so this helps only where the products are the slower part.
#include <fmt/format.h>

#include "experts/support/layers.h"

namespace {

ladder::Row measured(ladder::Layers& layers, const std::string& label) {
  ladder::Row row = layers.measure_pipeline(label);
  row.note += fmt::format("{}{} rows, {} with padding", row.note.empty() ? "" : "; ", layers.rows(),
                          layers.padded_rows());
  return row;
}

std::vector<ladder::Row> run(ladder::Context& context) {
  auto& layers = context.shared<ladder::Layers>();
  ladder::Layers rounded(context, {.rounding = context.quick() ? 16 : 128});
  return {measured(layers, "routes as they are"), measured(rounded, "rounded routes")};
}

PENSTOCK_RUNG("rounded", "Routes rounded to whole tiles: less to compute, as much to load.", run);

}  // namespace
