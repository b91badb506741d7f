// Launches the products of `decode`: one kernel per projection, over the passes that a previous
// kernel listed.
#include "ops/moe/sm90_decode.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "ops/moe/gpu.h"
#include "ops/moe/sm90_maps.h"
#include "penstock/base/error.h"

namespace ps::detail {
namespace {

template <class Decode>
kit::LaunchOptions options_of() {
  return {.block = Decode::threads,
          .shared_bytes = sizeof(typename Decode::Shared),
          .overlaps_previous = true};
}

// The blocks that run at the same time.
template <class Decode>
unsigned resident() {
  const unsigned fit = kit::resident_clusters(moe_decode<Decode>, options_of<Decode>());
  if (fit == 0) throw Unsupported("the kernel decode of moe does not fit on this GPU");
  return fit;
}

template <class Decode>
void launch(MoeDecodeArguments<typename Decode::Element>& arguments, unsigned depth,
            std::int64_t most_units, cudaStream_t stream) {
  constexpr unsigned step = 64 * Decode::panels;
  arguments.steps = (depth + step - 1) / step;
  kit::LaunchOptions options = options_of<Decode>();
  options.grid = static_cast<unsigned>(std::min<std::int64_t>(resident<Decode>(), most_units));
  kit::launch(moe_decode<Decode>, options, stream, arguments);
}

// One projection, along `depth` elements of K.
template <class Element, bool is_up>
void run(MoeDecodeArguments<Element>& arguments, const MoeWork& work, unsigned depth,
         bool by_column, cudaStream_t stream) {
  using High = MoeDecode<Element, is_up, moe_pass_rows, false, false>;
  using Low = MoeDecode<Element, is_up, moe_low_pass_rows, false, false>;
  using Wide = MoeDecode<Element, is_up, moe_low_pass_rows, true, false>;
  using ByColumn = MoeDecode<Element, is_up, moe_pass_rows, false, true>;
  const unsigned unit_rows = by_column ? ByColumn::unit_rows : moe_weight_rows;
  arguments.units = (arguments.rows + unit_rows - 1) / unit_rows;
  const std::int64_t most_units = moe_most_passes(work.rows(), work.experts) * arguments.units;
  const std::int64_t usual_units = std::min(work.rows(), work.experts) * arguments.units;
  if (by_column) {
    launch<ByColumn>(arguments, depth, most_units, stream);
  } else if (moe_rows_per_pass(work.tokens) > moe_low_pass_rows) {
    launch<High>(arguments, depth, most_units, stream);
  } else if (usual_units <= std::int64_t{Low::most_units} * resident<Wide>()) {
    // A block has no more units than fit into one slot: fewer rows and longer steps are faster.
    launch<Wide>(arguments, depth, most_units, stream);
  } else {
    launch<Low>(arguments, depth, most_units, stream);
  }
}

template <class Element>
void run_products(const MoeWork& work, Place place, cudaStream_t stream) {
  const auto u = [](std::int64_t value) { return static_cast<unsigned>(value); };
  const MoeSpace space(work);
  const bool interleaved = work.layout == GateUpLayout::interleaved;
  MoeDecodeArguments<Element> up{.weights = {},
                                 .passes = space.passes,
                                 .pass_count = space.counters + 4,
                                 .units = 0,
                                 .steps = 0,
                                 .from = work.x,
                                 .from_chunks = u(work.x_row / 8),
                                 .chunks = u(work.hidden / 8),
                                 .source = space.source,
                                 .choices = kit::Divisor(u(work.choices)),
                                 .to = static_cast<Element*>(space.h),
                                 .columns = u(work.width),
                                 .rows = u(2 * work.width),
                                 .bias = static_cast<const Element*>(work.held.gate_up_bias),
                                 .bias_slot = work.held.gate_up_bias_slot,
                                 .bias_step = interleaved ? 2U : 1U,
                                 .bias_up = interleaved ? 1U : u(work.width),
                                 .gate = work.gate};
  MoeDecodeArguments<Element> down = up;
  down.from = space.h;
  down.from_chunks = down.chunks = u(work.width / 8);
  down.to = static_cast<Element*>(space.y);
  down.columns = down.rows = u(work.hidden);
  down.bias = static_cast<const Element*>(work.held.down_bias);
  down.bias_slot = work.held.down_bias_slot;
  down.bias_step = 1;
  const bool up_by_column = work.held.gate_up_column != 1;
  const bool down_by_column = work.held.down_column != 1;
  for (unsigned i = 0; i < 4; ++i) {
    const std::int64_t units = std::int64_t{1} << i;
    if (!up_by_column) up.weights[i] = gate_up_rows_map(work, place, units);
    if (!down_by_column) down.weights[i] = down_rows_map(work, place, moe_weight_rows * units);
  }
  if (up_by_column) up.weights[0] = gate_up_columns_map(work, place);
  if (down_by_column) down.weights[0] = down_columns_map(work, place);
  run<Element, true>(up, work, u(work.hidden), up_by_column, stream);
  run<Element, false>(down, work, u(work.width), down_by_column, stream);
}

}  // namespace

void moe_products_decode_sm90(const MoeWork& work, Place place, cudaStream_t stream) {
  if (work.type == DType::f16) {
    run_products<__half>(work, place, stream);
  } else {
    run_products<__nv_bfloat16>(work, place, stream);
  }
}

}  // namespace ps::detail
