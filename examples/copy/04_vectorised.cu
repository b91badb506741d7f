// 16 bytes a load, several loads before the first is used, and hints that each byte is wanted once.
// A quarter of the instructions for the same bytes, and many more bytes on their way: a
// multiprocessor of an H200 wants some 48 KiB under way to keep its share of the memory busy.
#include "copy/support/f.cuh"
#include "copy/support/grids.cuh"
#include "copy/support/rung.h"
#include "support/phases.cuh"

namespace {

using namespace ladder::copy;
using ladder::Phase;

// Cache hints for data that is read once and written once.
enum class Hint {
  none,
  streaming,
  wide,  // that, and to fetch 256 bytes where the first of them is asked for
};

template <Hint hint>
__device__ float4 load(const float4* from) {
  if constexpr (hint == Hint::streaming) return __ldcs(from);
  if constexpr (hint == Hint::none) return *from;
  float4 value;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(from));
  return value;
}
template <Hint hint>
__device__ void store(float4* to, float4 value) {
  if constexpr (hint != Hint::none) {
    __stcs(to, value);
  } else {
    *to = value;
  }
}

// A block takes `loads` rows of vectors, one after the other in memory.
template <unsigned threads, unsigned loads, Hint hint, bool traced = false>
__global__ void __launch_bounds__(threads)
    vectorised(const float4* in, float4* out, std::size_t vectors, int rounds,
               ps::kit::TraceBuffer<traced> buffer) {
  ladder::Phases<traced> phases(buffer);
  const std::size_t first = std::size_t{blockIdx.x} * threads * loads + threadIdx.x;
  float4 v[loads];
#pragma unroll
  for (unsigned k = 0; k < loads; ++k) {
    if (first + k * threads < vectors) v[k] = load<hint>(in + first + k * threads);
  }
  phases.end(Phase::load, v);
  f(v, rounds);
  phases.end(Phase::compute, v);
#pragma unroll
  for (unsigned k = 0; k < loads; ++k) {
    if (first + k * threads < vectors) store<hint>(out + first + k * threads, v[k]);
  }
  phases.end(Phase::store);
}

template <unsigned loads, Hint hint = Hint::streaming, unsigned threads = 256>
Kernel make(const char* label, std::vector<Intensity> at) {
  return over_vectors(label, vectorised<threads, loads, hint>,
                      {.threads = threads, .piece = threads * loads}, std::move(at));
}

std::vector<Kernel> kernels() {
  constexpr auto copy_bound = Intensity::copy_bound, balanced = Intensity::balanced,
                 compute_bound = Intensity::compute_bound;
  return {make<1>("1 load per thread", {copy_bound, balanced, compute_bound}),
          make<2>("2 loads per thread", {copy_bound, balanced}),
          make<4>("4 loads per thread", {copy_bound, balanced, compute_bound}),
          make<8>("8 loads per thread", {copy_bound, balanced}),
          make<4, Hint::none>("4 loads per thread, no hints", {copy_bound, balanced}),
          make<4, Hint::wide>("4 loads per thread, 256-byte L2 hint", {copy_bound, balanced}),
          make<1, Hint::none>("1 load per thread, no hints", {copy_bound, balanced}),
          make<1, Hint::streaming, 128>("1 load, 128 threads", {copy_bound, balanced}),
          make<1, Hint::none, 128>("1 load, 128 threads, no hints", {copy_bound}),
          make<2, Hint::streaming, 512>("2 loads, 512 threads", {copy_bound}),
          make<4, Hint::streaming, 512>("4 loads, 512 threads", {copy_bound}),
          make<2, Hint::streaming, 1024>("2 loads, 1024 threads", {copy_bound})};
}

std::vector<Traced> traced() {
  return {{.name = "vectorised",
           .kernel =
               [](const auto& buffer) {
                 return over_vectors("traced", vectorised<256, 4, Hint::streaming, true>,
                                     {.threads = 256, .piece = 256 * 4}, {}, {buffer});
               },
           .room = {.blocks = 160, .capacity = 1, .short_blocks = true}}};
}

const ladder::Instructions machine{.holds = {"LDG.128", "STG.128"}, .lacks = {"STS", "LDGSTS"}};
PENSTOCK_COPY_RUNG("vectorised",
                   "Each load reads 16 bytes, and several loads per thread are in flight.", machine,
                   kernels, traced);

}  // namespace
