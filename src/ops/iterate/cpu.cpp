// The CPU's iterate: enough independent vectors in registers to keep both multiply-add ports full.
// The instruction set is chosen at run time by a plain branch: the resolvers that
// target_clones would generate run before a sanitizer has started, and crash in it.
#include <cmath>

#include "ops/iterate/iterate.h"
#include "penstock/ops/iterate.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ps::detail {
namespace {

using Kernel = void (*)(IterateWork work);

// Correct everywhere; fast where the compiler's baseline has a fused multiply-add.
void run_baseline(IterateWork work) {
  for (std::size_t i = 0; i < work.elements; ++i) work.out[i] = iterated(work.in[i], work.rounds);
}

#if defined(__x86_64__)

// Independent chains: latency (4 cycles) times ports (2).
constexpr std::size_t chains = 8;

__attribute__((target("avx2,fma"))) void run_avx2(IterateWork work) {
  constexpr std::size_t lanes = 8, tile = chains * lanes;
  const __m256 scale = _mm256_set1_ps(iterate_scale), shift = _mm256_set1_ps(iterate_shift);
  std::size_t i = 0;
  for (; i + tile <= work.elements; i += tile) {
    __m256 x[chains];
    for (std::size_t c = 0; c < chains; ++c) x[c] = _mm256_loadu_ps(work.in + i + c * lanes);
    for (int round = 0; round < work.rounds; ++round) {
      for (__m256& chain : x) chain = _mm256_fmadd_ps(scale, chain, shift);
    }
    for (std::size_t c = 0; c < chains; ++c) _mm256_storeu_ps(work.out + i + c * lanes, x[c]);
  }
  for (; i < work.elements; ++i) work.out[i] = iterated(work.in[i], work.rounds);
}

__attribute__((target("avx512f"))) void run_avx512(IterateWork work) {
  constexpr std::size_t lanes = 16, tile = chains * lanes;
  const __m512 scale = _mm512_set1_ps(iterate_scale), shift = _mm512_set1_ps(iterate_shift);
  std::size_t i = 0;
  for (; i + tile <= work.elements; i += tile) {
    __m512 x[chains];
    for (std::size_t c = 0; c < chains; ++c) x[c] = _mm512_loadu_ps(work.in + i + c * lanes);
    for (int round = 0; round < work.rounds; ++round) {
      for (__m512& chain : x) chain = _mm512_fmadd_ps(scale, chain, shift);
    }
    for (std::size_t c = 0; c < chains; ++c) _mm512_storeu_ps(work.out + i + c * lanes, x[c]);
  }
  for (; i < work.elements; ++i) work.out[i] = iterated(work.in[i], work.rounds);
}

Kernel choose_kernel() {
  if (__builtin_cpu_supports("avx512f")) return run_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return run_avx2;
  return run_baseline;
}

#else

Kernel choose_kernel() { return run_baseline; }

#endif

}  // namespace

void iterate_cpu(const IterateWork& work, const Stream& stream) {
  static const Kernel kernel = choose_kernel();
  stream.call([work] { kernel(work); });
}

}  // namespace ps::detail
