// A loader that copies both operands with cp.async, 16 bytes per thread. A tensor copy takes much
// longer for rows that do not begin at multiples of 128 bytes: these copies only read more sectors.
#pragma once

#include <cstdint>

#include "penstock/kit/cp_async.cuh"
#include "penstock/kit/gemm/parts.cuh"

namespace ps::kit {

// Used by all threads of the loader warpgroup. Operands are K-major, and each block loads its own.
template <class Config>
class RowLoader {
 public:
  struct Arguments {
    const void* a;  // and b: aligned to 16 bytes
    const void* b;
    std::uint64_t a_pitch, b_pitch;  // bytes from one row to the next, multiples of 16
    unsigned b_rows;
    unsigned chunks;  // of 16 bytes in a row: K must be a multiple of 8
  };
  static constexpr unsigned threads = warpgroup_threads;
  static constexpr unsigned commits = threads;  // each thread's copies arrive by themselves
  static constexpr unsigned registers = 56;
  static_assert(Config::cluster_blocks == 1, "blocks share nothing");
  static_assert(Config::TileB::major == Major::k, "loads K-major operands only");

  __device__ static void prefetch_arguments(const Arguments&) {}

  // Eight threads copy a row's 128 bytes. A thread copies the same chunk of every 16th row, so that
  // the swizzle moves all of them by the same distance.
  __device__ RowLoader(GemmSlots<Config>& slots, const Arguments& arguments)
      : slots_(slots),
        arguments_(arguments),
        producer_(slots),
        line_(threadIdx.x / 8),
        chunk_(threadIdx.x % 8),
        to_(Config::TileA::offset(line_, chunk_ * 8)) {}

  template <class Before>
  __device__ void load(const GemmTile& tile, unsigned steps, const Before& before) {
    const unsigned b_rows = min(arguments_.b_rows - tile.column, Config::tile_n);
    const unsigned char* a = first(arguments_.a, arguments_.a_pitch, tile.row);
    const unsigned char* b = first(arguments_.b, arguments_.b_pitch, tile.column);
    for (unsigned step = 0; step < steps; ++step) {
      before(step);
      const unsigned slot = producer_.acquire();
      if constexpr (Config::traced) {
        if (threadIdx.x == 0) slots_.issued[slot] = SmSource::now();
      }
      // Chunks behind the last of K are zeros.
      const unsigned valid = step * 8 + chunk_ < arguments_.chunks ? 16 : 0;
      copy<Config::tile_m>(slots_.a[slot], a, arguments_.a_pitch, tile.rows, valid);
      copy<Config::tile_n>(slots_.b[slot], b, arguments_.b_pitch, b_rows, valid);
      // As in other kernels for Hopper, no proxy fence follows: it would have to wait for the
      // copies, and wgmma sees what cp.async has written without one.
      cp_async_arrive(producer_.full(slot));
      a += bytes;
      b += bytes;
    }
  }

  // No thread ends while its copies and arrivals are in flight.
  __device__ void drain() { producer_.drain(); }

 private:
  static constexpr unsigned bytes = Config::tile_k * sizeof(typename Config::Element);  // of a row
  static constexpr unsigned lines = threads / 8;  // that are copied at a time
  static_assert(Config::tile_m % lines == 0 && Config::tile_n % lines == 0);

  // The thread's first chunk.
  __device__ const unsigned char* first(const void* matrix, std::uint64_t pitch, unsigned row) {
    return static_cast<const unsigned char*>(matrix) + (row + line_) * pitch + chunk_ * 16;
  }

  // Copies the thread's chunks of `rows` rows; what is left in the slot is not stored.
  template <unsigned count>
  __device__ void copy(unsigned char* to, const unsigned char* from, std::uint64_t pitch,
                       unsigned rows, unsigned valid) {
#pragma unroll
    for (unsigned row = 0; row < count; row += lines) {
      if (row + line_ < rows) {
        cp_async<16>(to + to_ + Config::TileA::row_offset(row), from + row * pitch, valid);
      }
    }
  }

  GemmSlots<Config>& slots_;
  const Arguments& arguments_;
  GemmProducer<Config::traced, Config::depth> producer_;
  unsigned line_, chunk_, to_;
};

}  // namespace ps::kit
