// wgmma in many widths, both factors in shared memory with K contiguous.
#include "gpu/kit_wgmma_test.h"

namespace ps::test {
namespace {

template <class P>
class KitWgmmaShapesGpu : public WgmmaTest<P> {};

template <unsigned n, class LayoutA = K128, class LayoutB = K128>
using Bf = Product<Bfloat, Bfloat, n, 64, LayoutA, LayoutB>;

using Shapes = testing::Types<
    // every kind of width, up to the widest
    Bf<8>, Bf<16>, Bf<24>, Bf<64>, Bf<96>, Bf<128>, Bf<192>, Bf<248>, Bf<256>,
    // the other type
    Product<Half, Half, 8, 64>, Product<Half, Half, 96, 64>, Product<Half, Half, 256, 64>,
    // one slice of K, and several panels of it
    Product<Bfloat, Bfloat, 40, 16, K32, K0>, Product<Bfloat, Bfloat, 40, 128, K128, K128>,
    Product<Bfloat, Bfloat, 40, 128, K64, K32>, Product<Half, Half, 40, 128, K0, K64>,
    Product<Half, Half, 40, 192, K128, K0>>;
TYPED_TEST_SUITE(KitWgmmaShapesGpu, Shapes, ProductName);

TYPED_TEST(KitWgmmaShapesGpu, Multiplies) { this->check(); }

class KitWgmmaGpu : public KitSm90Test {};

__global__ void accumulators(unsigned* rows, unsigned* columns) {
  for (unsigned i = 0; i < 128; ++i) {
    rows[i * 128 + threadIdx.x] = kit::accumulator_row(i);
    columns[i * 128 + threadIdx.x] = kit::accumulator_column(i);
  }
}

TEST_F(KitWgmmaGpu, SaysWhereAccumulatorsBelong) {
  const DeviceArray<unsigned> rows(128 * 128), columns(128 * 128);
  run(accumulators, {.block = 128}, rows.data(), columns.data());
  EXPECT_TRUE(same(rows.values(), [](std::size_t at) {
    const std::size_t i = at / 128, thread = at % 128;
    return static_cast<unsigned>(thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8);
  }));
  EXPECT_TRUE(same(columns.values(), [](std::size_t at) {
    const std::size_t i = at / 128, thread = at % 128;
    return static_cast<unsigned>(thread % 4 * 2 + i % 2 + i / 4 * 8);
  }));
}

}  // namespace
}  // namespace ps::test
