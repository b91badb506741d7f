// One of the experts' two products on Hopper for few rows per expert, when reading the weights
// takes longest. The operands are swapped: rows of weights are wgmma's A, and the expert's tokens
// are the columns of the result, so that 8 rows of an expert need no more than 8 columns.
//
// The blocks share out the units of 16 weight rows of all passes (passes.h). A part of up to
// `most_units` units goes through the ring of slots step by step along K.
#pragma once

#include <cstdint>

#include "ops/moe/activation.cuh"
#include "ops/moe/passes.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/cp_async.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/matrix.cuh"
#include "penstock/kit/piece_store.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/scheduler.h"
#include "penstock/kit/tile.h"
#include "penstock/kit/tma.cuh"
#include "penstock/kit/warp.cuh"
#include "penstock/kit/wgmma.cuh"

namespace ps::detail {

// Configuration. A slot has 128 weight rows by 64 columns, or with `wide` 64 rows by 128 columns,
// which shortens the product if a block has few units.
template <class Element_, bool is_up_, unsigned most_rows_, bool wide>
struct MoeDecode {
  using Element = Element_;
  static constexpr bool is_up = is_up_;                // of gate and up, else of down
  static constexpr unsigned most_rows = most_rows_;    // of a pass
  static constexpr unsigned panels = wide ? 2 : 1;     // of 64 columns, in a slot
  static constexpr unsigned consumers = wide ? 1 : 2;  // warpgroups, 64 weight rows each
  static constexpr unsigned most_units = 64 * consumers / moe_weight_rows;
  static constexpr unsigned unit_columns = is_up ? 8 : 16;  // of the result
  using Weights = kit::SharedTile<Element, 64 * consumers, 64>;
  using Tokens = kit::SharedTile<Element, most_rows, 64>;

  static constexpr unsigned slot_bytes = panels * (Weights::bytes + Tokens::bytes);
  static constexpr unsigned room = 225 * 1024 / slot_bytes;
  static constexpr unsigned depth = room < 12 ? room : 12;
  using Slots = kit::Ring<kit::Barrier, depth>;

  // The consumers' warps come first, then one that loads weights and one that loads tokens.
  static constexpr unsigned weights_warp = 4 * consumers, tokens_warp = weights_warp + 1;
  static constexpr unsigned threads = (tokens_warp + 1) * kit::warp_threads;

  struct Shared {
    alignas(1024) unsigned char weights[depth][panels][Weights::bytes];
    alignas(1024) unsigned char tokens[depth][panels][Tokens::bytes];
    Slots ring;
  };
  static_assert(sizeof(Shared) <= 227 * 1024, "a block has 227 KiB of shared memory");
};

template <class Element>
struct MoeDecodeArguments {
  kit::TensorMap weights[4];  // with boxes of 1, 2, 4 and 8 units by 64 columns

  const std::uint64_t* passes;
  const unsigned* pass_count;
  unsigned units;  // of a pass
  unsigned steps;  // along K

  const void* from;        // x or h
  unsigned from_chunks;    // 16-byte chunks from one row to the next
  unsigned chunks;         // in a row
  const unsigned* source;  // the up-projection's: of each row, t * K + k
  kit::Divisor choices;    // K

  Element* to;       // h or y
  unsigned columns;  // of `to`

  const Element* bias;  // null: none
  std::int64_t bias_slot;
  unsigned bias_step, bias_up;  // from one gate to the next, and from a gate to its up
  MoeGate gate;
};

// The table of passes, read by whole warps. The first 32 passes are loaded together with their
// number: one round trip to memory instead of two. Reads bypass the L1 cache, because the down-
// projection may start before the table's writer has ended.
class MoePasses {
 public:
  __device__ MoePasses(const std::uint64_t* words, const unsigned* count)
      : words_(words), first_(__ldcg(words + kit::lane_index())), count_(__ldcg(count)) {}

  __device__ unsigned count() const { return count_; }
  __device__ MoeItem operator[](unsigned pass) const {
    const std::uint64_t word = pass < kit::warp_threads ? first_ : __ldcg(words_ + pass);
    return MoeItem::unpacked(__shfl_sync(~0u, word, pass % kit::warp_threads));
  }

 private:
  const std::uint64_t* words_;
  std::uint64_t first_;
  unsigned count_;
};

// Calls use(pass, part) for each part of this block, in all threads of the calling warp.
template <class Decode, class Use>
__device__ inline void each_part(const MoeDecodeArguments<typename Decode::Element>& work,
                                 const Use& use) {
  const MoePasses passes(work.passes, work.pass_count);
  MoeRun run(passes.count(), work.units, blockIdx.x, gridDim.x);
  MoePart part;
  while (run.next(part, Decode::most_units)) use(passes[part.pass], part);
}

// Loads weights. Units of a part are loaded in boxes of 8, 4, 2 and 1.
template <class Decode>
__device__ inline void load_weights(typename Decode::Shared& shared,
                                    const MoeDecodeArguments<typename Decode::Element>& work) {
  constexpr unsigned unit_bytes = Decode::Weights::row_offset(moe_weight_rows);
  const bool leads = kit::elect();
  const kit::CacheHint hint = kit::evict_first();  // most weights are read once
  kit::Producer<kit::Barrier, Decode::depth> producer(shared.ring);
  each_part<Decode>(work, [&](const MoeItem& pass, const MoePart& part) {
    for (unsigned step = 0; step < work.steps; ++step) {
      const unsigned slot = producer.acquire();
      if (leads) {
        auto& full = producer.full(slot);
        full.arrive_expect(Decode::panels * part.units * unit_bytes);
#pragma unroll
        for (unsigned panel = 0; panel < Decode::panels; ++panel) {
          const unsigned k = (step * Decode::panels + panel) * 64;
          unsigned done = 0;
#pragma unroll
          for (int size = 3; size >= 0; --size) {
            if ((part.units >> size & 1) == 0) continue;
            unsigned char* const to = shared.weights[slot][panel] + done * unit_bytes;
            const unsigned unit = part.unit + done;
            if constexpr (Decode::is_up) {
              kit::tensor_load(to, work.weights[size], full, hint, pass.slot, unit, 0, 0, k);
            } else {
              kit::tensor_load(to, work.weights[size], full, hint, pass.slot,
                               unit * moe_weight_rows, k);
            }
            done += 1u << size;
          }
        }
      }
      __syncwarp();
    }
  });
}

// Loads the rows of a pass, eight lanes per row. Other rows of the slot keep what they hold: they
// only reach columns of the result that are not stored.
template <class Decode>
__device__ inline void load_tokens(typename Decode::Shared& shared,
                                   const MoeDecodeArguments<typename Decode::Element>& work) {
  using Tokens = typename Decode::Tokens;
  constexpr unsigned rows_at_once = 4, most = Decode::most_rows / rows_at_once;
  const unsigned line = kit::lane_index() / 8, chunk = kit::lane_index() % 8;
  kit::Producer<kit::Barrier, Decode::depth> producer(shared.ring);
  each_part<Decode>(work, [&](const MoeItem& pass, const MoePart&) {
    unsigned at[most];  // chunks before the copied one; 32 bits hold 64 GiB
#pragma unroll
    for (unsigned j = 0; j < most; ++j) {
      if (rows_at_once * j >= pass.rows) break;
      // Lanes behind the last row repeat its address, and copy nothing.
      unsigned row = pass.first + min(line + rows_at_once * j, pass.rows - 1);
      if constexpr (Decode::is_up) row = work.choices.divide(work.source[row]);
      at[j] = row * work.from_chunks + chunk;
    }
    for (unsigned step = 0; step < work.steps; ++step) {
      const unsigned slot = producer.acquire();
#pragma unroll
      for (unsigned panel = 0; panel < Decode::panels; ++panel) {
        const unsigned before = (step * Decode::panels + panel) * 8;
        // Zeros behind the end of the row, since 0 times what lies there could be NaN.
        const unsigned valid = before + chunk < work.chunks ? 16 : 0;
#pragma unroll
        for (unsigned j = 0; j < most; ++j) {
          if (rows_at_once * j >= pass.rows) break;
          const unsigned row = line + rows_at_once * j;
          if (row >= pass.rows) continue;
          const std::uint64_t from = std::uint64_t{at[j]} + (valid > 0 ? before : 0);
          kit::cp_async<16>(shared.tokens[slot][panel] + Tokens::offset(row, chunk * 8),
                            static_cast<const unsigned char*>(work.from) + from * 16, valid);
        }
      }
      // No proxy fence: see MoeGatherLoader.
      kit::cp_async_arrive(producer.full(slot));
    }
  });
  producer.drain();
}

// Stores one unit: 16 weight rows, of which a thread has lane / 4 and the one 8 below, by 2 * count
// rows of the pass. Eight columns of the result are transposed at a time, so that a thread stores
// two of them for one row.
template <class Decode, unsigned count>
__device__ inline void store_unit(const float (&d)[count],
                                  const MoeDecodeArguments<typename Decode::Element>& work,
                                  const MoeItem& pass, unsigned unit) {
  using Element = typename Decode::Element;
  const unsigned lane = kit::lane_index();
  const unsigned column = unit * Decode::unit_columns;
  const bool both = Decode::is_up || column + 8 < work.columns;  // the last unit may be half
  float upper = 0, lower = 0;                                    // biases
  if (work.bias != nullptr) {
    const Element* const bias = work.bias + pass.slot * work.bias_slot;
    const unsigned first = column + lane / 4;
    upper = static_cast<float>(bias[first * work.bias_step]);
    if (both) {
      lower = static_cast<float>(
          bias[Decode::is_up ? first * work.bias_step + work.bias_up : first + 8]);
    }
  }
  const unsigned row = pass.first + lane / 4;
  Element* const to = work.to + std::uint64_t{row} * work.columns + column + lane % 4 * 2;
#pragma unroll
  for (unsigned j = 0; j < count / 4; ++j) {
    if (8 * j >= pass.rows) break;
    const float* const c = d + 4 * j;
    const bool ours = 8 * j + lane / 4 < pass.rows;
    Element* const place = to + std::uint64_t{8 * j} * work.columns;
    const auto put = [&](Element* at, float low, float high, bool store) {
      const std::uint32_t pair = kit::transposed(kit::packed(low, high, Element()));
      if (store) *reinterpret_cast<std::uint32_t*>(at) = pair;
    };
    if constexpr (Decode::is_up) {
      put(place, activated<false>(work.gate, c[0] + upper, c[2] + lower),
          activated<false>(work.gate, c[1] + upper, c[3] + lower), ours);
    } else {
      put(place, c[0] + upper, c[1] + upper, ours);
      put(place + 8, c[2] + lower, c[3] + lower, ours && both);
    }
  }
}

// Multiplies and stores parts.
template <class Decode>
class MoeDecodeConsumer {
 public:
  using Weights = typename Decode::Weights;
  using Tokens = typename Decode::Tokens;
  using Arguments = MoeDecodeArguments<typename Decode::Element>;

  __device__ MoeDecodeConsumer(typename Decode::Shared& shared, const Arguments& work)
      : work_(work),
        consumer_(shared.ring),
        weights_(kit::Operand<Weights>::at(kit::shared_address(shared.weights))
                     .from_row(64 * kit::warpgroup_index())),
        tokens_(kit::Operand<Tokens>::at(kit::shared_address(shared.tokens))) {}

  // With as few columns as the rows of the pass allow.
  __device__ void run(const MoeItem& pass, const MoePart& part) {
    if constexpr (Decode::most_rows == 8) {
      run_as<8>(pass, part);
    } else if (pass.rows <= 8) {
      run_as<8>(pass, part);
    } else if (pass.rows <= 16) {
      run_as<16>(pass, part);
    } else if (pass.rows <= 32) {
      run_as<32>(pass, part);
    } else {
      run_as<64>(pass, part);
    }
  }

 private:
  template <unsigned n>
  __device__ void run_as(const MoeItem& pass, const MoePart& part) {
    float d[n / 2];
    for (unsigned step = 0; step < work_.steps; ++step) {
      const unsigned slot = consumer_.wait();
      kit::wgmma_fence();
#pragma unroll
      for (unsigned panel = 0; panel < Decode::panels; ++panel) {
        const unsigned place = slot * Decode::panels + panel;
        const kit::Operand<Weights> a{weights_.bits + place * (Weights::bytes >> 4)};
        const kit::Operand<Tokens> b{tokens_.bits + place * (Tokens::bytes >> 4)};
#pragma unroll
        for (unsigned k = 0; k < Weights::slices; ++k) {
          kit::multiply(d, a.slice(k), b.slice(k), step > 0 || panel > 0 || k > 0);
        }
      }
      kit::wgmma_commit();
      if (step > 0) {  // release the previous slot while the tensor cores work on this one
        kit::wgmma_wait<1>();
        release();
      }
    }
    kit::wgmma_wait<0>(d);
    release();
    const unsigned unit = kit::warp_index();
    if (unit < part.units) store_unit<Decode>(d, work_, pass, part.unit + unit);
  }

  __device__ void release() {
    if (threadIdx.x % kit::warpgroup_threads == 0) {
      consumer_.release();
    } else {
      consumer_.skip_release();
    }
  }

  const Arguments& work_;
  kit::Consumer<kit::Barrier, Decode::depth> consumer_;
  kit::Operand<Weights> weights_;
  kit::Operand<Tokens> tokens_;
};

// The down-projection reads the table and loads weights before the up-projection has ended. That is
// allowed because the up-projection has waited for all kernels before it by the time this one
// starts: whatever wrote the table or the weights is done. Only the rows of h are awaited.
template <class Decode>
__global__ void __launch_bounds__(Decode::threads, 1)
    moe_decode(const __grid_constant__ MoeDecodeArguments<typename Decode::Element> work) {
  // Shared storage
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename Decode::Shared*>(memory);

  // Setup
  if (threadIdx.x == 0) {
    shared.ring.init(1 + kit::warp_threads, Decode::consumers);
    kit::fence_barrier_init();
  }
  if (threadIdx.x / kit::warp_threads == Decode::weights_warp && kit::lane_index() < 4) {
    kit::prefetch(work.weights[kit::lane_index()]);
  }
  __syncthreads();
  if constexpr (Decode::is_up) kit::wait_for_previous();
  kit::let_next_start();

  // Roles
  const unsigned warp = kit::warp_index();
  if (warp == Decode::weights_warp) {
    load_weights<Decode>(shared, work);
  } else if (warp == Decode::tokens_warp) {
    // Every block waits, even one without work, so that this kernel never ends before the last.
    kit::wait_for_previous();
    load_tokens<Decode>(shared, work);
  } else {
    MoeDecodeConsumer<Decode> consumer(shared, work);
    each_part<Decode>(work,
                      [&](const MoeItem& pass, const MoePart& part) { consumer.run(pass, part); });
  }
}

}  // namespace ps::detail
