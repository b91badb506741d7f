// What the rungs with the arithmetic of ScalarTile share besides it: slots for keys and values, and
// the launch.
#pragma once

#include <type_traits>

#include "attention/support/launch.cuh"
#include "attention/support/maps.cuh"
#include "attention/support/scalar.cuh"

namespace ladder::attention {

template <class Element, unsigned stages>
struct ScalarShared {
  using Tile = ScalarTile<Element>;
  typename Tile::Shared own;
  alignas(1024) unsigned char k[stages][Tile::Tile::bytes];
  alignas(1024) unsigned char v[stages][Tile::Tile::bytes];
};

// A kernel that takes the problem, or tensor maps and the problem.
template <class Element, auto kernel, class Shared>
Variant scalar_variant(const std::string& what) {
  using Tile = ScalarTile<Element>;
  const auto run = [](const Problem& p, const ps::Stream& stream) {
    const kit::LaunchOptions options{
        .grid = grid_of(p, Tile::queries), .block = Tile::threads, .shared_bytes = sizeof(Shared)};
    if constexpr (std::is_invocable_v<decltype(kernel), Maps, Problem>) {
      const Maps maps = maps_of<Element>(p, Tile::queries, Tile::keys);
      kit::launch(kernel, options, ps::cuda_stream(stream), maps, p);
    } else {
      kit::launch(kernel, options, ps::cuda_stream(stream), p);
    }
  };
  return {.label = label_of<Element>(what), .type = type_of<Element>, .run = run, .use = [] {
            return ladder::kernel_use(kernel, Tile::threads, sizeof(Shared));
          }};
}

inline std::string of_stages(unsigned stages) { return std::to_string(stages) + " stages"; }

}  // namespace ladder::attention
