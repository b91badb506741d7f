#include "penstock/kit/mma.cuh"

#include "gpu/kit_test.h"
#include "penstock/kit/matrix.cuh"

namespace {

using ps::test::DeviceArray;
using ps::test::same;

class KitMmaGpu : public ps::test::KitTest {};

// Rows of a tile lie 24 elements apart, so that neither rows nor tiles follow one another.
constexpr unsigned pitch = 24;

// Lane l gives the address of row l%8 of tile l/8 and holds what it got of every tile.
template <unsigned tiles, bool transposed>
__global__ void load_tiles(const std::uint16_t* in, std::uint32_t* out) {
  __shared__ alignas(16) std::uint16_t shared[tiles * 8 * pitch];
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < tiles * 8 * pitch; i += 32) shared[i] = in[i];
  __syncwarp();
  std::uint32_t got[tiles];
  ps::kit::load_matrices<transposed>(got, shared + lane % (tiles * 8) * pitch);
  for (unsigned tile = 0; tile < tiles; ++tile) out[tile * 32 + lane] = got[tile];
}

TEST_F(KitMmaGpu, LoadsMatrices) {
  const auto check = [&](auto kernel, unsigned tiles, bool transposed) {
    SCOPED_TRACE(testing::Message() << tiles << " tiles, transposed: " << transposed);
    const auto values = noise<std::uint16_t>(tiles * 8 * pitch);
    const DeviceArray<std::uint16_t> in(values);
    const DeviceArray<std::uint32_t> out(tiles * 32);
    run(kernel, {.block = 32}, in.data(), out.data());
    EXPECT_TRUE(same(out.values(), [&](std::size_t i) {
      const std::size_t tile = i / 32, lane = i % 32;
      const auto at = [&](std::size_t row, std::size_t column) -> std::uint32_t {
        if (transposed) std::swap(row, column);
        return values[(tile * 8 + row) * pitch + column];
      };
      return at(lane / 4, 2 * (lane % 4)) | at(lane / 4, 2 * (lane % 4) + 1) << 16;
    }));
  };
  check(load_tiles<4, false>, 4, false);
  check(load_tiles<4, true>, 4, true);
  check(load_tiles<2, false>, 2, false);
  check(load_tiles<2, true>, 2, true);
}

// 16 x 16 times 16 x 8, several of them one after the other. A is row-major; B lies as its
// transpose (8 x k), or as it is (k x 8).
template <class Element, bool b_as_it_is>
__global__ void multiply(const Element* a, const Element* b, const float* c, float* d,
                         unsigned steps) {
  __shared__ alignas(16) Element a_tile[16 * pitch], b_tile[16 * pitch];
  const unsigned lane = threadIdx.x, k = steps * 16;
  // Where the product's elements are.
  const auto at = [&](unsigned i) { return (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2; };
  float sums[4];
  for (unsigned i = 0; i < 4; ++i) sums[i] = c[at(i)];
  for (unsigned step = 0; step < steps; ++step) {
    for (unsigned i = lane; i < 16 * 16; i += 32) {
      a_tile[i / 16 * pitch + i % 16] = a[i / 16 * k + step * 16 + i % 16];
    }
    for (unsigned i = lane; i < 16 * 8; i += 32) {
      if constexpr (b_as_it_is) {
        b_tile[i / 8 * pitch + i % 8] = b[(step * 16 + i / 8) * 8 + i % 8];
      } else {
        b_tile[i / 16 * pitch + i % 16] = b[i / 16 * k + step * 16 + i % 16];
      }
    }
    __syncwarp();
    std::uint32_t left[4], right[2];
    const unsigned row = lane % 8, tile = lane / 8;
    ps::kit::load_matrices(left, a_tile + (tile % 2 * 8 + row) * pitch + tile / 2 * 8);
    if constexpr (b_as_it_is) {
      ps::kit::load_matrices<true>(right, b_tile + (tile % 2 * 8 + row) * pitch);
    } else {
      ps::kit::load_matrices(right, b_tile + row * pitch + tile % 2 * 8);
    }
    ps::kit::mma<Element>(sums, left, right);
    __syncwarp();
  }
  for (unsigned i = 0; i < 4; ++i) d[at(i)] = sums[i];
}

template <class Element>
class KitMmaTypedGpu : public KitMmaGpu {};
using MmaElements = testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(KitMmaTypedGpu, MmaElements);

TYPED_TEST(KitMmaTypedGpu, Multiplies) {
  constexpr unsigned steps = 5, k = steps * 16;
  const auto check = [&](auto kernel, bool b_as_it_is) {
    SCOPED_TRACE(testing::Message() << "B as it is: " << b_as_it_is);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<TypeParam> a(16 * k), b(k * 8);
    std::vector<float> c(16 * 8);
    for (auto& value : a) value = TypeParam(uniform(this->random));
    for (auto& value : b) value = TypeParam(uniform(this->random));
    for (auto& value : c) value = uniform(this->random);
    const DeviceArray<TypeParam> a_there(a), b_there(b);
    const DeviceArray<float> c_there(c), d(c.size());
    this->run(kernel, {.block = 32}, a_there.data(), b_there.data(), c_there.data(), d.data(),
              steps);
    EXPECT_TRUE(ps::test::near(
        d.values(),
        [&](std::size_t at) {
          const std::size_t row = at / 8, column = at % 8;
          double sum = c[at];
          for (std::size_t i = 0; i < k; ++i) {
            const TypeParam right = b_as_it_is ? b[i * 8 + column] : b[column * k + i];
            sum += double{static_cast<float>(a[row * k + i])} * double{static_cast<float>(right)};
          }
          return sum;
        },
        k * 0x1p-18));
  };
  check(multiply<TypeParam, false>, false);
  check(multiply<TypeParam, true>, true);
}

}  // namespace
