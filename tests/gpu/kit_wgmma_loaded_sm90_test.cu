// wgmma on tiles that tensor copies brought, panel by panel.
#include "gpu/kit_wgmma_test.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/tensor_map.h"
#include "penstock/kit/tma.cuh"

namespace ps::test {
namespace {

// One load per panel. K contiguous: rows by one span of K; else columns by one span of rows.
template <class Tile>
__device__ void load_panels(unsigned char* tile, const kit::TensorMap& map, kit::Barrier& full) {
  for (unsigned panel = 0; panel < Tile::panels; ++panel) {
    kit::tensor_load(tile + panel * Tile::panel_bytes, map, full, kit::evict_last(), 0,
                     static_cast<int>(panel * Tile::span_elements));
  }
}

template <class P>
__global__ void __launch_bounds__(128)
    multiply_loaded(const __grid_constant__ kit::TensorMap a_map,
                    const __grid_constant__ kit::TensorMap b_map, float* d) {
  using A = typename P::A;
  using B = typename P::B;
  __shared__ Patient<kit::Barrier> full;
  unsigned char* const a_tile = aligned_shared();
  unsigned char* const b_tile = a_tile + P::a_bytes;
  if (threadIdx.x == 0) {
    full.init(1);
    kit::fence_barrier_init();
    full.arrive_expect(A::bytes + B::bytes);
    load_panels<A>(a_tile, a_map, full);
    load_panels<B>(b_tile, b_map, full);
  }
  __syncthreads();
  full.wait(0);
  const auto left = kit::Operand<A>::at(kit::shared_address(a_tile));
  const auto right = kit::Operand<B>::at(kit::shared_address(b_tile));
  float sums[P::n / 2] = {};
  kit::wgmma_fence();
#pragma unroll
  for (unsigned k = 0; k < A::slices; ++k) {
    kit::multiply(sums, left.slice(k), right.slice(k), k > 0);
  }
  kit::wgmma_commit();
  kit::wgmma_wait<0>(sums);
  each_accumulator<P::n>([&](unsigned i, std::size_t at) { d[at] = sums[i]; });
}

// The matrix as it lies in global memory: K or the other dimension contiguous.
template <class Tile>
std::vector<typename Tile::Element> as_it_lies(const std::vector<typename Tile::Element>& rows) {
  if (Tile::major == kit::Major::k) return rows;
  std::vector<typename Tile::Element> turned(rows.size());
  for (std::size_t row = 0; row < Tile::rows; ++row) {
    for (std::size_t column = 0; column < Tile::columns; ++column) {
      turned[column * Tile::rows + row] = rows[row * Tile::columns + column];
    }
  }
  return turned;
}

template <class Tile>
kit::TensorMap map_of(void* data) {
  constexpr DType type = Tile::element_bytes == 1                                ? DType::u8
                         : std::is_same_v<typename Tile::Element, __nv_bfloat16> ? DType::bf16
                                                                                 : DType::f16;
  return kit::encode(
      {.tensor = TensorView(data, type, {Tile::across, Tile::contiguous}, Place{Memory::device, 0}),
       .box = {Tile::across, Tile::span_elements},
       .swizzle = Tile::swizzle});
}

template <class P>
class KitWgmmaLoadedGpu : public KitSm90Test {};
using Loaded =
    testing::Types<Product<Bfloat, Bfloat, 128, 64>, Product<Bfloat, Bfloat, 64, 128, K128, Mn128>,
                   Product<Half, Half, 192, 64, Mn128, Mn64>, Product<Half, Half, 64, 64, K0, Mn0>,
                   Product<Bfloat, Bfloat, 32, 64, Mn0, K32>,
                   Product<Half, Half, 64, 64, K64, Mn32>,
                   Product<Bfloat, Bfloat, 64, 64, Mn32, K64>, Product<E4m3, E5m2, 64, 256>,
                   Product<E4m3, E4m3, 64, 128, K64, K0>>;
TYPED_TEST_SUITE(KitWgmmaLoadedGpu, Loaded, ProductName);

TYPED_TEST(KitWgmmaLoadedGpu, Multiplies) {
  using P = TypeParam;
  const Factors<P> factors(this->random);
  const DeviceArray<typename P::A::Element> a(as_it_lies<typename P::A>(factors.a));
  const DeviceArray<typename P::B::Element> b(as_it_lies<typename P::B>(factors.b));
  const DeviceArray<float> d(64 * P::n);
  this->run(multiply_loaded<P>, {.block = 128, .shared_bytes = P::shared_bytes},
            map_of<typename P::A>(a.data()), map_of<typename P::B>(b.data()), d.data());
  EXPECT_TRUE(near(
      d.values(), [&](std::size_t i) { return factors.at(i / P::n, i % P::n); },
      Factors<P>::tolerance));
}

}  // namespace
}  // namespace ps::test
