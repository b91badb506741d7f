// The products of a tile: of 16-bit elements with mma.sync, of f32 with ordinary multiply-adds, so
// that nothing is rounded to TF32. `pipe` waits for steps and starts the loads of later ones; see
// portable.cuh.
#pragma once

#include <type_traits>

#include "ops/moe/portable_tiles.cuh"
#include "penstock/kit/warp_product.cuh"

namespace ps::detail::moe_portable {

// A warp's place in its block.
__device__ inline unsigned warp_row() { return kit::warp_index() / 4 * (group_rows / 2); }
__device__ inline unsigned warp_column() { return kit::warp_index() % 4; }

template <class Config>
class MmaProduct {
  using Warp = kit::WarpProduct<typename Config::Element, typename Config::TileA,
                                typename Config::TileB, groups, group_rows, fragments>;
  static_assert(Warp::slices == 2, "the loop below has two sets of fragments");

 public:
  static constexpr unsigned rows = 2;  // that a lane has in each group

  __device__ MmaProduct() : warp_(warp_row(), warp_column() * warp_columns) {}

  // Multiplies all steps of an item, in the first `count` groups of rows. The fragments of the next
  // slice are loaded before the current one is multiplied, also from one step to the next.
  template <unsigned count, class Pipe>
  __device__ void multiply(Pipe& pipe, unsigned steps) {
    clear();
    typename Warp::Fragments first, second;
    pipe.wait();
    warp_.template load<count>(first, pipe.a(), pipe.b(), 0);
#pragma unroll 1
    for (unsigned left = steps;;) {
      warp_.template load<count>(second, pipe.a(), pipe.b(), 1);
      pipe.load_ahead();
      warp_.template multiply<count>(first);
      pipe.advance();
      if (--left == 0) break;
      pipe.wait();
      warp_.template load<count>(first, pipe.a(), pipe.b(), 0);
      warp_.template multiply<count>(second);
    }
    warp_.template multiply<count>(second);
  }

  // The row of the tile that the lane's row r of a group is.
  __device__ static unsigned row(unsigned group, unsigned r) {
    return group * group_rows + warp_row() + kit::lane_index() / 4 + 8 * r;
  }
  // In that row, column p of the lane's pair in fragment f.
  __device__ float& at(unsigned group, unsigned r, unsigned f, unsigned p) {
    return warp_.sums[group][f][2 * r + p];
  }

 private:
  __device__ void clear() {
#pragma unroll
    for (auto& group : warp_.sums) {
#pragma unroll
      for (auto& fragment : group) {
#pragma unroll
        for (float& sum : fragment) sum = 0;
      }
    }
  }

  Warp warp_;
};

template <class Config>
class FmaProduct {
  using TileA = typename Config::TileA;
  using TileB = typename Config::TileB;

 public:
  static constexpr unsigned rows = 4;  // that a lane has in each group

  template <unsigned count, class Pipe>
  __device__ void multiply(Pipe& pipe, unsigned steps) {
#pragma unroll
    for (auto& group : sums_) {
#pragma unroll
      for (auto& row : group) {
#pragma unroll
        for (float& sum : row) sum = 0;
      }
    }
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step) {
      pipe.wait();
      pipe.load_ahead();
#pragma unroll 1
      for (unsigned slice = 0; slice < slices; ++slice) add<count>(pipe.a(), pipe.b(), slice);
      pipe.advance();
    }
  }

  __device__ static unsigned row(unsigned group, unsigned r) {
    return group * group_rows + warp_row() + kit::lane_index() / 8 + 4 * r;
  }
  __device__ float& at(unsigned group, unsigned r, unsigned f, unsigned) {
    return sums_[group][r][f];
  }

 private:
  static constexpr unsigned slices = row_bytes / chunk_bytes;  // of four k

  __device__ static float4 chunk(const unsigned char* at) {
    return *reinterpret_cast<const float4*>(at);
  }

  // Four k of the lane's eight columns.
  __device__ static void load(float4 (&b)[fragments], const unsigned char* tile, unsigned slice) {
    const unsigned lane = kit::lane_index() % 8, first = warp_column() * warp_columns;
    if constexpr (Config::major == kit::Major::k) {
      const unsigned char* const from = tile + TileB::offset(first + lane, slice * 8);
#pragma unroll
      for (unsigned f = 0; f < fragments; ++f) b[f] = chunk(from + TileB::row_offset(8 * f));
    } else {
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) {
        const auto set = [k](float4& to, float value) {
          (k == 0 ? to.x : k == 1 ? to.y : k == 2 ? to.z : to.w) = value;
        };
#pragma unroll
        for (unsigned c = 0; c < 2; ++c) {  // chunks of four columns
          const float4 columns =
              chunk(tile + TileB::offset(2 * first + (lane + 8 * c) * 8, 4 * slice + k));
          const auto f = [c](unsigned column) {
            return Config::up ? 2 * column + c : 4 * c + column;
          };
          set(b[f(0)], columns.x);
          set(b[f(1)], columns.y);
          set(b[f(2)], columns.z);
          set(b[f(3)], columns.w);
        }
      }
    }
  }

  template <unsigned count>
  __device__ void add(const unsigned char* a, const unsigned char* b, unsigned slice) {
    float4 right[fragments];
    load(right, b, slice);
    const unsigned first = row(0, 0);
    // The swizzle repeats every eight rows.
    const unsigned char* const from[2] = {a + TileA::offset(first, slice * 8),
                                          a + TileA::offset(first + 4, slice * 8)};
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
#pragma unroll
      for (unsigned r = 0; r < rows; ++r) {
        const float4 left = chunk(from[r % 2] + TileA::row_offset(group_rows * i + r / 2 * 8));
#pragma unroll
        for (unsigned f = 0; f < fragments; ++f) {
          float& sum = sums_[i][r][f];
          sum = fmaf(left.x, right[f].x, sum);
          sum = fmaf(left.y, right[f].y, sum);
          sum = fmaf(left.z, right[f].z, sum);
          sum = fmaf(left.w, right[f].w, sum);
        }
      }
    }
  }

  float sums_[groups][rows][fragments];
};

template <class Config>
using Product = std::conditional_t<Config::bytes == 2, MmaProduct<Config>, FmaProduct<Config>>;

}  // namespace ps::detail::moe_portable
