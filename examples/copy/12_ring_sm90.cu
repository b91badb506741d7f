// The same roles on the kit's ring, of any depth: acquire, commit, wait, release, and the phases
// are counted inside. The kernel is support/roles.cuh. How deep? One slot makes the roles take
// turns, three let each have its own, and from there on depth only needs to cover what the memory
// takes to answer: slots times tile should be well above the 48 KiB that keep it busy.
#include "copy/support/roles.cuh"
#include "copy/support/rung.h"
#include "penstock/base/units.h"

namespace {

using namespace ladder::copy;

constexpr unsigned KiB = 1024;
using Best = RolesConfig<6>;
constexpr RolesShape best{.tile_bytes = 32 * KiB, .by_counter = true};

template <class Config>
Kernel make(unsigned tile_bytes, std::vector<Intensity> at, unsigned blocks = 1,
            bool by_counter = true) {
  std::string label = ps::format_bytes(tile_bytes) + ", depth " + std::to_string(Config::depth);
  if (Config::compute_warps != 8) label += ", " + std::to_string(Config::compute_warps) + " warps";
  if (Config::at_once != 4) label += ", " + std::to_string(Config::at_once) + " vectors at once";
  if (blocks != 1) label += ", " + std::to_string(blocks) + " blocks per SM";
  if (!by_counter) label += ", fixed stride";
  return roles<Config>(std::move(label), {tile_bytes, blocks, by_counter}, std::move(at));
}

std::vector<Kernel> kernels() {
  constexpr auto copy_bound = Intensity::copy_bound, balanced = Intensity::balanced,
                 compute_bound = Intensity::compute_bound;
  const std::vector<Intensity> both{copy_bound, balanced};
  return {
      make<Best>(best.tile_bytes, {copy_bound, balanced, compute_bound}),
      // Who takes which tile.
      make<Best>(best.tile_bytes, {copy_bound, balanced, compute_bound}, 1, false),
      // Depth.
      make<RolesConfig<1>>(16 * KiB, both), make<RolesConfig<2>>(16 * KiB, both),
      make<RolesConfig<3>>(16 * KiB, both), make<RolesConfig<4>>(16 * KiB, both),
      make<RolesConfig<5>>(16 * KiB, both), make<RolesConfig<6>>(16 * KiB, both),
      make<RolesConfig<7>>(16 * KiB, both), make<RolesConfig<8>>(16 * KiB, both),
      // Tile. Small ones in step: a number takes longer to come than they do.
      make<RolesConfig<6>>(4 * KiB, both, 1, false), make<RolesConfig<6>>(8 * KiB, both, 1, false),
      make<RolesConfig<8>>(24 * KiB, both), make<RolesConfig<4>>(48 * KiB, both),
      // Just what keeps the memory busy, and no more: reads and writes then stay close together.
      make<RolesConfig<2>>(24 * KiB, {copy_bound}),
      // Who computes.
      make<RolesConfig<6, 4>>(32 * KiB, {balanced}), make<RolesConfig<8, 12>>(24 * KiB, {balanced}),
      make<RolesConfig<6, 16>>(32 * KiB, {balanced}), make<RolesConfig<6>>(16 * KiB, both, 2),
      make<RolesConfig<3, 8, Side::both, false, 8>>(32 * KiB, both, 2)};
}

std::vector<Traced> traced() {
  return {{.name = "ring", .roles = role_names(), .kernel = [](const auto& buffer) {
             using Seen = RolesConfig<Best::depth, Best::compute_warps, Side::both, true>;
             return roles<Seen>("traced", best, {}, buffer);
           }}};
}

const ladder::Instructions machine{.holds = {"UBLKCP.S.G", "UBLKCP.G.S", "SYNCS", "ELECT"},
                                   .lacks = {"LDG"}};
PENSTOCK_COPY_RUNG("ring",
                   "Warps that load, compute and store overlap by means of a ring of buffers.",
                   machine, kernels, traced);

}  // namespace
