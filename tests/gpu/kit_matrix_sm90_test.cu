#include "penstock/kit/matrix.cuh"

#include "gpu/kit_test.h"

namespace {

using ps::test::DeviceArray;
using ps::test::same;

class KitMatrixGpu : public ps::test::KitSm90Test {};

// Rows of a tile lie 24 elements apart, so that neither rows nor tiles follow one another.
constexpr unsigned pitch = 24;

// Lane l gives the address of row l%8 of tile l/8.
template <unsigned tiles, bool transposed>
__global__ void store_tiles(const std::uint32_t* in, std::uint16_t* out) {
  __shared__ alignas(16) std::uint16_t shared[tiles * 8 * pitch];
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < tiles * 8 * pitch; i += 32) shared[i] = 0xFFFF;
  __syncwarp();
  std::uint32_t held[tiles];
  for (unsigned tile = 0; tile < tiles; ++tile) held[tile] = in[tile * 32 + lane];
  ps::kit::store_matrices<transposed>(shared + lane % (tiles * 8) * pitch, held);
  __syncwarp();
  for (unsigned i = lane; i < tiles * 8 * pitch; i += 32) out[i] = shared[i];
}

TEST_F(KitMatrixGpu, StoresMatrices) {
  const auto check = [&](auto kernel, unsigned tiles, bool transposed) {
    SCOPED_TRACE(testing::Message() << tiles << " tiles, transposed: " << transposed);
    const auto words = noise(tiles * 32);
    const DeviceArray<std::uint32_t> in(words);
    const DeviceArray<std::uint16_t> out(tiles * 8 * pitch);
    run(kernel, {.block = 32}, in.data(), out.data());
    EXPECT_TRUE(same(out.values(), [&](std::size_t i) {
      const std::size_t tile = i / (8 * pitch);
      std::size_t row = i / pitch % 8, column = i % pitch;
      if (column >= 8) return std::uint16_t{0xFFFF};
      if (transposed) std::swap(row, column);
      const std::uint32_t word = words[tile * 32 + row * 4 + column / 2];
      return static_cast<std::uint16_t>(column % 2 == 0 ? word : word >> 16);
    }));
  };
  check(store_tiles<4, false>, 4, false);
  check(store_tiles<4, true>, 4, true);
  check(store_tiles<2, false>, 2, false);
  check(store_tiles<2, true>, 2, true);
}

// What was stored is loaded again, by the same lanes.
template <bool transposed>
__global__ void there_and_back(const std::uint32_t* in, std::uint32_t* out) {
  __shared__ alignas(16) std::uint16_t shared[32 * pitch];
  const unsigned lane = threadIdx.x;
  std::uint32_t held[4], got[4];
  for (unsigned tile = 0; tile < 4; ++tile) held[tile] = in[tile * 32 + lane];
  ps::kit::store_matrices<transposed>(shared + lane * pitch, held);
  __syncwarp();
  ps::kit::load_matrices<transposed>(got, shared + lane * pitch);
  for (unsigned tile = 0; tile < 4; ++tile) out[tile * 32 + lane] = got[tile];
}

TEST_F(KitMatrixGpu, LoadsUndoStores) {
  for (auto* const kernel : {there_and_back<false>, there_and_back<true>}) {
    const auto words = noise(128);
    const DeviceArray<std::uint32_t> in(words), out(words.size());
    run(kernel, {.block = 32}, in.data(), out.data());
    EXPECT_TRUE(same(out.values(), words));
  }
}

__global__ void transpose_tile(const std::uint32_t* in, std::uint32_t* out) {
  out[threadIdx.x] = ps::kit::transpose(in[threadIdx.x]);
}

TEST_F(KitMatrixGpu, TransposesATile) {
  const auto words = noise(32);
  const DeviceArray<std::uint32_t> in(words), out(32);
  run(transpose_tile, {.block = 32}, in.data(), out.data());
  const auto element = [&](std::size_t row, std::size_t column) {
    const std::uint32_t word = words[row * 4 + column / 2];
    return column % 2 == 0 ? word & 0xFFFF : word >> 16;
  };
  EXPECT_TRUE(same(out.values(), [&](std::size_t lane) {
    const std::size_t row = lane / 4, column = lane % 4 * 2;
    return element(column, row) | element(column + 1, row) << 16;
  }));
}

}  // namespace
