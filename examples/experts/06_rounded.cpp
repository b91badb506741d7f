// Routes whose tokens per expert are rounded to multiples of the tile: the products then pad no
// rows. The loads stay the same, so this helps only where the products are the slower part.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "experts/support/layers.h"

namespace {

// At most the mean number of tokens per expert: with a larger tile, all experts of a layer could
// round down to none.
std::int64_t tile_of(const ladder::Layers& layers) {
  const ps::ExpertShape& shape = layers.work().shape();
  const std::int64_t mean = layers.rows() / (shape.layers * shape.experts);
  return static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::clamp<std::int64_t>(mean, 1, 128))));
}

ladder::Row measured(ladder::Layers& layers, std::int64_t tile, const std::string& label) {
  ladder::Row row = layers.measure_pipeline(label);
  row.note += fmt::format("{}{} rows, {} in whole tiles of {}", row.note.empty() ? "" : "; ",
                          layers.rows(), layers.padded_rows(tile), tile);
  return row;
}

std::vector<ladder::Row> run(ladder::Context& context) {
  auto& layers = context.shared<ladder::Layers>();
  const std::int64_t tile = tile_of(layers);
  ladder::Layers rounded(context, {.rounding = tile});
  return {measured(layers, tile, "routes as they are"), measured(rounded, tile, "rounded routes")};
}

PENSTOCK_RUNG("rounded", "Routes rounded to whole tiles save computation, but no loads.", run);

}  // namespace
