// The down-projection of narrow experts.
#include "ops/moe/sm90_narrow.cuh"

#include "ops/moe/sm90_launch.cuh"

namespace ps::detail {
namespace {

template <class Narrow>
void run_narrow(const MoeWork& work, Place place, cudaStream_t stream) {
  const MoeSpace space(work);
  const TensorView h(space.h, work.type, {work.rows(), work.width}, place);
  const TensorView y(space.y, work.type, {work.rows(), work.hidden}, place);
  const typename Narrow::Arguments operands{loaded(h, {moe_unit_rows, 64}),
                                            down_rows_map(work, place, Narrow::Tile::rows),
                                            static_cast<unsigned>(moe_down_columns(work.hidden))};
  const typename Narrow::Order items{space.down_items, space.counters + 1, space.counters + 3};
  kit::LaunchOptions options{.block = Narrow::threads,
                             .shared_bytes = sizeof(typename Narrow::Shared),
                             .overlaps_previous = true};
  options.grid = kit::resident_clusters(narrow_down<Narrow>, options);
  const typename Narrow::Store::Arguments out{kit::encode(kit::ragged_options(y)),
                                              down_bias<typename Narrow::Element>(work), work.gate};
  kit::launch(narrow_down<Narrow>, options, stream, operands, out, items);
}

template <class Element>
void run(const MoeWork& work, Place place, cudaStream_t stream) {
  if (work.width <= 64) return run_narrow<MoeNarrow<Element, 1>>(work, place, stream);
  if (work.width <= 128) return run_narrow<MoeNarrow<Element, 2>>(work, place, stream);
  if (work.width <= 192) return run_narrow<MoeNarrow<Element, 3>>(work, place, stream);
  run_narrow<MoeNarrow<Element, 4>>(work, place, stream);
}

}  // namespace

void moe_narrow_down_sm90(const MoeWork& work, Place place, cudaStream_t stream) {
  if (work.type == DType::f16) return run<__half>(work, place, stream);
  run<__nv_bfloat16>(work, place, stream);
}

}  // namespace ps::detail
