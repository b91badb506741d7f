#include "copy/support/sides.h"

#include "copy/support/roles.cuh"
#include "penstock/base/units.h"

namespace ladder::copy {
namespace {

template <unsigned depth, unsigned warps, unsigned at_once = 4>
Sides sides(unsigned tile_bytes, unsigned blocks = 1, bool by_counter = true) {
  const RolesShape shape{
      .tile_bytes = tile_bytes, .blocks_per_multiprocessor = blocks, .by_counter = by_counter};
  std::string name = ps::format_bytes(tile_bytes) + ", depth " + std::to_string(depth) + ", " +
                     std::to_string(warps) + " warps";
  if (blocks > 1) name += ", " + std::to_string(blocks) + " blocks per SM";
  if (at_once != 4) name += ", " + std::to_string(at_once) + " vectors at once";
  if (!by_counter) name += ", fixed stride";
  return {.name = name,
          .both = roles<RolesConfig<depth, warps, Side::both, false, at_once>>(name, shape, {}),
          .copy = roles<RolesConfig<depth, warps, Side::copy, false, at_once>>(
              name + ", copy alone", shape, {}),
          .compute = roles<RolesConfig<depth, warps, Side::compute, false, at_once>>(
              name + ", compute alone", shape, {})};
}

}  // namespace

std::vector<Sides> role_sides() {
  constexpr unsigned KiB = 1024;
  return {sides<6, 8>(32 * KiB),    sides<6, 8>(32 * KiB, 1, false), sides<8, 12>(24 * KiB),
          sides<6, 16>(32 * KiB),   sides<4, 8, 6>(48 * KiB),        sides<12, 8>(16 * KiB),
          sides<6, 8>(16 * KiB, 2), sides<3, 8>(32 * KiB, 2),        sides<3, 8, 8>(32 * KiB, 2),
          sides<4, 4>(16 * KiB, 3)};
}

}  // namespace ladder::copy
