// wgmma with A in registers, and with 8-bit elements.
#include "gpu/kit_wgmma_test.h"

namespace ps::test {
namespace {

template <class Element, unsigned n, unsigned k = 64, class LayoutB = K128>
using InRegisters = Product<Element, Element, n, k, K128, LayoutB, true>;

template <class P>
class KitWgmmaRegistersGpu : public WgmmaTest<P> {};
using Registers =
    testing::Types<InRegisters<Bfloat, 8>, InRegisters<Bfloat, 24>, InRegisters<Bfloat, 64>,
                   InRegisters<Bfloat, 128>, InRegisters<Bfloat, 248>, InRegisters<Bfloat, 256>,
                   InRegisters<Half, 16>, InRegisters<Half, 192>, InRegisters<Half, 96, 128>,
                   InRegisters<Bfloat, 64, 64, K0>, InRegisters<Bfloat, 64, 64, K32>,
                   InRegisters<Half, 64, 64, Mn128>, InRegisters<Bfloat, 64, 64, Mn64>,
                   InRegisters<Bfloat, 64, 64, Mn0>>;
TYPED_TEST_SUITE(KitWgmmaRegistersGpu, Registers, ProductName);
TYPED_TEST(KitWgmmaRegistersGpu, Multiplies) { this->check(); }

template <class P>
class KitWgmmaBytesGpu : public WgmmaTest<P> {};
using InBytes = testing::Types<
    // the four pairs, from shared memory and from registers
    Product<E4m3, E4m3, 64, 128>, Product<E4m3, E5m2, 64, 128>, Product<E5m2, E4m3, 64, 128>,
    Product<E5m2, E5m2, 64, 128>, Product<E4m3, E4m3, 64, 128, K128, K128, true>,
    Product<E4m3, E5m2, 64, 128, K128, K128, true>, Product<E5m2, E4m3, 64, 128, K128, K128, true>,
    Product<E5m2, E5m2, 64, 128, K128, K128, true>,
    // widths
    Product<E4m3, E4m3, 8, 128>, Product<E4m3, E4m3, 24, 128>, Product<E4m3, E4m3, 96, 128>,
    Product<E4m3, E4m3, 248, 64, K64, K64>, Product<E4m3, E5m2, 256, 128>,
    Product<E4m3, E4m3, 256, 64, K64, K64, true>,
    // layouts
    Product<E4m3, E4m3, 128, 128, K0, K64>, Product<E5m2, E4m3, 128, 128, K32, K0>,
    Product<E4m3, E5m2, 128, 256, K64, K32>, Product<E5m2, E5m2, 16, 32, K32, K0, true>>;
TYPED_TEST_SUITE(KitWgmmaBytesGpu, InBytes, ProductName);
TYPED_TEST(KitWgmmaBytesGpu, Multiplies) { this->check(); }

}  // namespace
}  // namespace ps::test
