// Routes whose tokens per expert are rounded to multiples of the tile: the products then pad no
// rows. The loads stay the same, so this helps only where the products are the slower part.
#include <fmt/format.h>

#include "experts/support/layers.h"

namespace {

ladder::Row measured(ladder::Layers& layers, std::int64_t tile, const std::string& label) {
  ladder::Row row = layers.measure_pipeline(label);
  row.note += fmt::format("{}{} rows, {} in whole tiles of {}", row.note.empty() ? "" : "; ",
                          layers.rows(), layers.padded_rows(tile), tile);
  return row;
}

std::vector<ladder::Row> run(ladder::Context& context) {
  auto& layers = context.shared<ladder::Layers>();
  const std::int64_t tile = context.quick() ? 16 : 128;
  ladder::Layers rounded(context, {.rounding = tile});
  return {measured(layers, tile, "routes as they are"), measured(rounded, tile, "rounded routes")};
}

PENSTOCK_RUNG("rounded", "Routes rounded to whole tiles save computation, but no loads.", run);

}  // namespace
