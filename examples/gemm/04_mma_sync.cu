// Tensor cores, the portable way: cp.async brings tiles to shared memory three steps ahead,
// ldmatrix hands them to registers, and every warp multiplies 64x64 with mma.sync. Runs from
// compute capability 8.0 on; 96 KiB of shared memory, so that small GPUs have it too.
#include "gemm/support/gemm_rung.h"
#include "penstock/kit/cp_async.cuh"
#include "penstock/kit/matrix.cuh"
#include "penstock/kit/mma.cuh"
#include "penstock/kit/scheduler.h"
#include "penstock/kit/tile.h"
#include "penstock/kit/warp.cuh"
#include "support/phases.cuh"

namespace {

namespace kit = ps::kit;
using gemm::Problem;
using ladder::Phase;

// Configuration
constexpr unsigned tile_m = 128, tile_n = 256, tile_k = 32;
constexpr unsigned depth = 4;
constexpr unsigned threads = 256;  // warps in 2 rows and 4 columns, of 64x64 each
constexpr unsigned group = 8;      // tile rows whose blocks run together
using TileA = kit::SharedTile<__nv_bfloat16, tile_m, tile_k, kit::Major::k, kit::Swizzle::b64>;
using TileB = kit::SharedTile<__nv_bfloat16, tile_n, tile_k, kit::Major::k, kit::Swizzle::b64>;

// Shared storage
struct Shared {
  alignas(512) unsigned char a[depth][TileA::bytes];
  alignas(512) unsigned char b[depth][TileB::bytes];
};

// What a thread loads of A or B: 16 bytes of every `step`-th row, zeros beyond the matrix. Rows
// that are not aligned to 16 bytes go through registers.
template <class Tile, bool aligned>
class Loads {
 public:
  __device__ Loads(const __nv_bfloat16* matrix, unsigned row, unsigned rows, unsigned columns)
      : matrix_(matrix),
        first_(row + threadIdx.x / 4),
        column_(threadIdx.x % 4 * 8),
        rows_(rows),
        columns_(columns),
        from_(matrix + std::size_t{min(first_, rows - 1)} * columns + column_),
        offset_(Tile::offset(threadIdx.x / 4, column_)) {}

  // Steps beyond the last are zeros, too: a condition around all of it would keep the compiler from
  // mixing the copies with the products.
  __device__ void operator()(unsigned char* to, unsigned k) const {
#pragma unroll
    for (unsigned turn = 0; turn < Tile::rows / step; ++turn) {
      const unsigned row = first_ + turn * step;
      unsigned char* const there = to + offset_ + turn * step * tile_k * 2;  // the same swizzle
      if constexpr (aligned) {
        const bool inside = row < rows_ && k + column_ < columns_;
        kit::cp_async<16>(there, from_ + std::size_t{turn * step} * columns_ + k, inside ? 16 : 0);
      } else {
        *reinterpret_cast<uint4*>(there) =
            gemm::eight_raw(matrix_, row, k + column_, rows_, columns_);
      }
    }
  }

 private:
  static constexpr unsigned step = threads / 4;
  static_assert(step % 8 == 0, "rows that far apart are swizzled alike");

  const __nv_bfloat16* matrix_;
  unsigned first_, column_, rows_, columns_;
  const __nv_bfloat16* from_;
  unsigned offset_;
};

// A warp's 64x64 part of the product.
class Warp {
 public:
  __device__ Warp(unsigned warp) : row_(warp / 4 * 64), column_(warp % 4 * 64) {}

  // What 16 columns of K need, into one of two sets of registers.
  __device__ void fetch(unsigned set, const unsigned char* a, const unsigned char* b, unsigned k) {
    const unsigned lane = kit::lane_index();
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      kit::load_matrices(a_[set][i],
                         a + TileA::offset(row_ + 16 * i + lane % 16, k + lane / 16 * 8));
    }
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      kit::load_matrices(b_[set][i], b + TileB::offset(column_ + 16 * i + lane / 16 * 8 + lane % 8,
                                                       k + lane / 8 % 2 * 8));
    }
  }

  __device__ void multiply(unsigned set) {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
#pragma unroll
      for (unsigned j = 0; j < 8; ++j) {
        const std::uint32_t b[2] = {b_[set][j / 2][j % 2 * 2], b_[set][j / 2][j % 2 * 2 + 1]};
        kit::mma<__nv_bfloat16>(sum_[i][j], a_[set][i], b);
      }
    }
  }

  __device__ void store(const Problem& p, unsigned row, unsigned column) const {
    const unsigned lane = kit::lane_index();
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
#pragma unroll
      for (unsigned j = 0; j < 8; ++j) {
        const unsigned r = row + row_ + 16 * i + lane / 4;
        const unsigned c = column + column_ + 8 * j + lane % 4 * 2;
        gemm::put_pair(p, r, c, sum_[i][j][0], sum_[i][j][1]);
        gemm::put_pair(p, r + 8, c, sum_[i][j][2], sum_[i][j][3]);
      }
    }
  }

 private:
  unsigned row_, column_;
  std::uint32_t a_[2][4][4], b_[2][4][4];
  float sum_[4][8][4] = {};
};

template <bool aligned, bool traced = false>
__global__ void __launch_bounds__(threads, 1)
    mma_sync(Problem p, kit::GroupedOrder order, kit::TraceBuffer<traced> buffer) {
  extern __shared__ __align__(512) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const kit::Tile tile = order.tile(blockIdx.x);
  const unsigned row = tile.row * tile_m, column = tile.column * tile_n;
  const unsigned steps = (p.k + tile_k - 1) / tile_k;
  ladder::Phases<traced, depth> phases(buffer);

  const Loads<TileA, aligned> load_a(p.a, row, p.m, p.k);
  const Loads<TileB, aligned> load_b(p.b, column, p.n, p.k);

  // A group of copies is closed at every step, so that the count of groups says which has arrived.
  const auto load_step = [&](unsigned step) {
    if (step < steps) phases.ask(step % depth);
    load_a(shared.a[step % depth], step * tile_k);
    load_b(shared.b[step % depth], step * tile_k);
    kit::cp_async_commit();
  };
  for (unsigned step = 0; step + 1 < depth; ++step) load_step(step);

  Warp warp(kit::warp_index());
  kit::cp_async_wait<depth - 2>();
  __syncthreads();
  if (steps > 0) phases.landed(0);
  warp.fetch(0, shared.a[0], shared.b[0], 0);
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned now = step % depth, next = (step + 1) % depth;
    // Registers for the second half come while the first half is multiplied.
    warp.fetch(1, shared.a[now], shared.b[now], 16);
    warp.multiply(0);
    phases.end(Phase::compute);
    load_step(step + depth - 1);      // into the slot that is free since the last barrier
    kit::cp_async_wait<depth - 2>();  // this thread's part of the next step,
    __syncthreads();                  // and that of all other threads
    if (step + 1 < steps) phases.landed(next);
    warp.fetch(0, shared.a[next], shared.b[next], 0);
    warp.multiply(1);
    phases.end(Phase::compute);
    phases.end_turn();
  }
  warp.store(p, row, column);
  phases.end(Phase::store);
}

template <bool aligned, bool traced = false>
void run_with(const Problem& p, cudaStream_t stream, const kit::TraceBuffer<traced>& buffer = {}) {
  const kit::GroupedOrder order((p.m + tile_m - 1) / tile_m, (p.n + tile_n - 1) / tile_n, group);
  const kit::LaunchOptions options = {
      .grid = order.count(), .block = threads, .shared_bytes = sizeof(Shared)};
  kit::launch(mma_sync<aligned, traced>, options, stream, p, order, buffer);
}

gemm::Traced traced() {
  return {.name = "mma_sync", .run = run_with<true, true>, .room = {.short_blocks = true}};
}

}  // namespace

namespace gemm {

void mma_sync(const Problem& p, cudaStream_t stream) {
  const bool aligned = p.k % 8 == 0 && is_aligned(p.a, 16) && is_aligned(p.b, 16);
  aligned ? run_with<true>(p, stream) : run_with<false>(p, stream);
}

}  // namespace gemm

const ladder::Instructions machine{.holds = {"HMMA.16816", "LDGSTS.128", "LDSM"}};
PENSTOCK_GEMM_RUNG("mma-sync", "mma.sync computes on tensor cores, on tiles that cp.async loads.",
                   machine, mma_sync<true>, threads, sizeof(Shared), gemm::mma_sync, traced);
