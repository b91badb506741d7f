#include "gemm/support/fill.h"
#include "penstock/kit/launch.cuh"

namespace gemm {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned blocks = 1024;

// A number's bits, well mixed.
__device__ std::uint32_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<std::uint32_t>(x ^ (x >> 31));
}

__device__ void put(__nv_bfloat16& to, float value) { to = __float2bfloat16(value); }
__device__ void put(__half& to, float value) { to = __float2half(value); }

template <class Element>
__global__ void random_kernel(Element* to, std::size_t count, std::uint32_t seed) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const std::uint32_t bits = mixed((std::uint64_t{seed} << 40) + i);
    put(to[i], static_cast<float>(bits >> 8) * (2.0f / 16777216.0f) - 1.0f);
  }
}

template <class Element>
__global__ void nan_kernel(const Element* in, std::size_t count, unsigned long long* found) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    mine += __hisnan(in[i]) ? 1 : 0;
  }
  if (mine > 0) atomicAdd(found, mine);
}

template <class Element>
void enqueue_random(Element* to, std::size_t count, std::uint32_t seed, cudaStream_t stream) {
  ps::kit::launch(random_kernel<Element>, {.grid = blocks, .block = threads}, stream, to, count,
                  seed);
}

template <class Element>
void enqueue_count(const Element* in, std::size_t count, unsigned long long* found,
                   cudaStream_t stream) {
  ps::kit::launch(nan_kernel<Element>, {.grid = blocks, .block = threads}, stream, in, count,
                  found);
}

}  // namespace

void fill_random(__nv_bfloat16* to, std::size_t count, std::uint32_t seed, cudaStream_t stream) {
  enqueue_random(to, count, seed, stream);
}
void fill_random(__half* to, std::size_t count, std::uint32_t seed, cudaStream_t stream) {
  enqueue_random(to, count, seed, stream);
}

void count_nan(const __nv_bfloat16* in, std::size_t count, unsigned long long* found,
               cudaStream_t stream) {
  enqueue_count(in, count, found, stream);
}
void count_nan(const __half* in, std::size_t count, unsigned long long* found,
               cudaStream_t stream) {
  enqueue_count(in, count, found, stream);
}

}  // namespace gemm
