// wgmma on factors in shared memory in every layout: K or the other dimension contiguous, with
// every swizzle.
#include "gpu/kit_wgmma_test.h"

namespace ps::test {
namespace {

template <class LayoutA, class LayoutB>
using Bf64 = Product<Bfloat, Bfloat, 64, 64, LayoutA, LayoutB>;
template <unsigned n, class LayoutB>
using Wide = Product<Half, Half, n, 32, K64, LayoutB>;

// Every layout of each factor beside a plain one of the other, and mixed.
template <class P>
class KitWgmmaLayoutsGpu : public WgmmaTest<P> {};
using Layouts =
    testing::Types<Bf64<K0, K128>, Bf64<K32, K128>, Bf64<K64, K128>, Bf64<Mn0, K128>,
                   Bf64<Mn32, K128>, Bf64<Mn64, K128>, Bf64<Mn128, K128>, Bf64<K128, K0>,
                   Bf64<K128, K32>, Bf64<K128, K64>, Bf64<K128, Mn0>, Bf64<K128, Mn32>,
                   Bf64<K128, Mn64>, Bf64<K128, Mn128>, Bf64<K0, K0>, Bf64<K32, Mn64>,
                   Bf64<K64, Mn32>, Bf64<Mn0, Mn0>, Bf64<Mn32, Mn128>, Bf64<Mn64, K32>,
                   Bf64<Mn128, Mn128>, Bf64<Mn128, K0>, Product<Half, Half, 64, 128, Mn128, Mn64>,
                   Product<Half, Half, 64, 128, Mn32, Mn0>>;
TYPED_TEST_SUITE(KitWgmmaLayoutsGpu, Layouts, ProductName);
TYPED_TEST(KitWgmmaLayoutsGpu, Multiplies) { this->check(); }

// N contiguous, in whole spans of the swizzle.
template <class P>
class KitWgmmaSpansGpu : public WgmmaTest<P> {};
using Spans = testing::Types<Wide<128, Mn128>, Wide<192, Mn128>, Wide<256, Mn128>, Wide<96, Mn64>,
                             Wide<256, Mn64>, Wide<16, Mn32>, Wide<48, Mn32>, Wide<8, Mn0>,
                             Wide<96, Mn0>, Wide<256, Mn0>>;
TYPED_TEST_SUITE(KitWgmmaSpansGpu, Spans, ProductName);
TYPED_TEST(KitWgmmaSpansGpu, Multiplies) { this->check(); }

// N contiguous, and not a multiple of the span: the product ends inside one.
template <class P>
class KitWgmmaPartialSpansGpu : public WgmmaTest<P> {};
using PartialSpans =
    testing::Types<Wide<8, Mn128>, Wide<24, Mn128>, Wide<96, Mn128>, Wide<248, Mn128>,
                   Wide<24, Mn64>, Wide<248, Mn64>, Wide<8, Mn32>, Wide<24, Mn32>, Wide<248, Mn32>>;
TYPED_TEST_SUITE(KitWgmmaPartialSpansGpu, PartialSpans, ProductName);
TYPED_TEST(KitWgmmaPartialSpansGpu, Multiplies) { this->check(); }

}  // namespace
}  // namespace ps::test
