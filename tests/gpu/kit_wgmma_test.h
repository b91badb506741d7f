// A product by wgmma against one of the host, for any types, shapes and layouts. For .cu files.
#pragma once

#include <string>
#include <type_traits>

#include "gpu/kit_test.h"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/tile.h"
#include "penstock/kit/wgmma.cuh"

namespace ps::test {
namespace {

using Half = __half;
using Bfloat = __nv_bfloat16;
using E4m3 = __nv_fp8_e4m3;
using E5m2 = __nv_fp8_e5m2;

template <kit::Major major_, kit::Swizzle swizzle_>
struct Layout {
  static constexpr kit::Major major = major_;
  static constexpr kit::Swizzle swizzle = swizzle_;
};
using K0 = Layout<kit::Major::k, kit::Swizzle::none>;
using K32 = Layout<kit::Major::k, kit::Swizzle::b32>;
using K64 = Layout<kit::Major::k, kit::Swizzle::b64>;
using K128 = Layout<kit::Major::k, kit::Swizzle::b128>;
using Mn0 = Layout<kit::Major::mn, kit::Swizzle::none>;
using Mn32 = Layout<kit::Major::mn, kit::Swizzle::b32>;
using Mn64 = Layout<kit::Major::mn, kit::Swizzle::b64>;
using Mn128 = Layout<kit::Major::mn, kit::Swizzle::b128>;

// 64 x n = 64 x k times k x n. The tiles have more rows, of which the product takes some.
template <class ElementA, class ElementB, unsigned n_, unsigned k_, class LayoutA = K128,
          class LayoutB = K128, bool a_in_registers_ = false>
struct Product {
  static constexpr unsigned n = n_, k = k_;
  static constexpr bool a_in_registers = a_in_registers_;
  using A = kit::SharedTile<ElementA, 128, k, LayoutA::major, LayoutA::swizzle>;
  static constexpr unsigned step =
      LayoutB::major == kit::Major::k ? 8 : kit::span(LayoutB::swizzle) / sizeof(ElementB);
  using B = kit::SharedTile<ElementB, (n + step - 1) / step * step + step, k, LayoutB::major,
                            LayoutB::swizzle>;
  static constexpr unsigned a_bytes = (A::bytes + 1023) / 1024 * 1024;
  static constexpr unsigned shared_bytes = a_bytes + B::bytes + 1024;

  static std::string name() {
    std::string text = name_of<ElementA>();
    text.append("_").append(name_of<ElementB>());
    text.append("_n").append(std::to_string(n)).append("_k").append(std::to_string(k));
    text.append("_a").append(a_in_registers ? "registers" : name_of_layout<LayoutA>());
    return text.append("_b").append(name_of_layout<LayoutB>());
  }

 private:
  template <class Element>
  static const char* name_of() {
    return std::is_same_v<Element, Half>     ? "f16"
           : std::is_same_v<Element, Bfloat> ? "bf16"
           : std::is_same_v<Element, E4m3>   ? "e4m3"
                                             : "e5m2";
  }
  template <class L>
  static const char* name_of_layout() {
    constexpr const char* names[2][4] = {{"K0", "K32", "K64", "K128"},
                                         {"Mn0", "Mn32", "Mn64", "Mn128"}};
    return names[L::major == kit::Major::mn][static_cast<unsigned>(L::swizzle)];
  }
};

struct ProductName {
  template <class P>
  static std::string GetName(int) {
    return P::name();
  }
};

// Lays out a tile by ordinary stores. `from` has its rows one after the other.
template <class Tile>
__device__ void lay_out(unsigned char* tile, const typename Tile::Element* from) {
  for (unsigned i = threadIdx.x; i < Tile::rows * Tile::columns; i += blockDim.x) {
    const unsigned at = Tile::offset(i / Tile::columns, i % Tile::columns);
    *reinterpret_cast<typename Tile::Element*>(tile + at) = from[i];
  }
}

// Calls visit(i, index in a 64 x n matrix) for all accumulators. The constants are spelled out, and
// compared with the kit's functions in a test: 128 indices in registers would leave no room for the
// accumulators.
template <unsigned n, class Visit>
__device__ void each_accumulator(const Visit& visit) {
  const std::size_t first = kit::accumulator_row(0) * n + kit::accumulator_column(0);
#pragma unroll
  for (unsigned i = 0; i < n / 2; ++i) visit(i, first + (i % 4 / 2 * 8 * n + i / 4 * 8 + i % 2));
}

// d = c + product, or the product alone without `add`; c is poison then.
// From the tiles' rows a_row and b_row on. A in registers: 4 bytes each of rows r and r + 8, then
// the same 16 bytes further along K.
template <class P>
__global__ void __launch_bounds__(128)
    multiply(const typename P::A::Element* a, const typename P::B::Element* b, const float* c,
             float* d, unsigned a_row, unsigned b_row, bool add) {
  using A = typename P::A;
  using B = typename P::B;
  unsigned char* const a_tile = aligned_shared();
  unsigned char* const b_tile = a_tile + P::a_bytes;
  if constexpr (!P::a_in_registers) lay_out<A>(a_tile, a);
  lay_out<B>(b_tile, b);
  kit::fence_shared_to_async();
  __syncthreads();

  float sums[P::n / 2];
  each_accumulator<P::n>([&](unsigned i, std::size_t at) { sums[i] = c[at]; });
  const auto right = kit::Operand<B>::at(kit::shared_address(b_tile)).from_row(b_row);
  if constexpr (P::a_in_registers) {
    std::uint32_t left[A::slices][4];
#pragma unroll
    for (unsigned k = 0; k < A::slices; ++k) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned lane = kit::lane_index();
        const unsigned row = a_row + threadIdx.x / 32 * 16 + i % 2 * 8 + lane / 4;
        const unsigned byte = k * 32 + i / 2 * 16 + lane % 4 * 4;
        left[k][i] = *reinterpret_cast<const std::uint32_t*>(
            reinterpret_cast<const unsigned char*>(a) + row * P::k * sizeof(*a) + byte);
      }
    }
    kit::wgmma_fence();
#pragma unroll
    for (unsigned k = 0; k < A::slices; ++k) {
      kit::multiply<typename A::Element>(sums, left[k], right.slice(k), add || k > 0);
    }
  } else {
    const auto left = kit::Operand<A>::at(kit::shared_address(a_tile)).from_row(a_row);
    kit::wgmma_fence();
#pragma unroll
    for (unsigned k = 0; k < A::slices; ++k) {
      kit::multiply(sums, left.slice(k), right.slice(k), add || k > 0);
    }
  }
  kit::wgmma_commit();
  kit::wgmma_wait<0>(sums);
  each_accumulator<P::n>([&](unsigned i, std::size_t at) { d[at] = sums[i]; });
}

// Random matrices, rows one after the other, and what their product is.
template <class P>
struct Factors {
  using ElementA = typename P::A::Element;
  using ElementB = typename P::B::Element;
  std::vector<ElementA> a;
  std::vector<ElementB> b;
  std::vector<double> a_exact, b_exact;

  explicit Factors(std::mt19937& random) {
    make(a, a_exact, P::A::rows, random);
    make(b, b_exact, P::B::rows, random);
  }

  double at(std::size_t row, std::size_t column) const {
    double sum = 0;
    for (unsigned i = 0; i < P::k; ++i) sum += a_exact[row * P::k + i] * b_exact[column * P::k + i];
    return sum;
  }

  // The tensor cores add 8-bit products with fewer bits than a float has.
  static constexpr double tolerance = P::k * (sizeof(ElementA) == 1 ? 0x1p-10 : 0x1p-18);

 private:
  template <class Element>
  static void make(std::vector<Element>& values, std::vector<double>& exact, unsigned rows,
                   std::mt19937& random) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    values.resize(std::size_t{rows} * P::k);
    exact.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = Element(uniform(random));
      exact[i] = static_cast<float>(values[i]);
    }
  }
};

template <class P>
class WgmmaTest : public KitSm90Test {
 protected:
  void check() {
    using A = typename P::A;
    using B = typename P::B;
    const Factors<P> factors(random);
    std::vector<float> before(64 * P::n);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& value : before) value = uniform(random);
    const DeviceArray<typename A::Element> a(factors.a);
    const DeviceArray<typename B::Element> b(factors.b);
    const DeviceArray<float> c(before), unused(before.size());
    const unsigned a_last = (A::rows - 64) / A::row_step, b_last = (B::rows - P::n) / B::row_step;
    for (const bool add : {false, true}) {
      for (const bool moved : {false, true}) {
        const unsigned a_row = moved ? A::row_step * (1 + random() % a_last) : 0;
        const unsigned b_row = moved ? B::row_step * (1 + random() % b_last) : 0;
        SCOPED_TRACE(testing::Message()
                     << "rows from " << a_row << " and " << b_row << ", added: " << add);
        const DeviceArray<float> d(before.size());
        run(multiply<P>, {.block = 128, .shared_bytes = P::shared_bytes}, a.data(), b.data(),
            add ? c.data() : unused.data(), d.data(), a_row, b_row, add);
        EXPECT_TRUE(near(
            d.values(),
            [&](std::size_t i) {
              return factors.at(a_row + i / P::n, b_row + i % P::n) + (add ? before[i] : 0.0F);
            },
            Factors<P>::tolerance));
      }
    }
  }
};

}  // namespace
}  // namespace ps::test
