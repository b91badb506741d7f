#include "gemm/support/tensor_ceiling.h"
#include "penstock/kit/address.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/wgmma.cuh"
#include "support/kernel_use.cuh"

namespace gemm {
namespace {

namespace kit = ps::kit;

constexpr unsigned groups = 2;  // one would leave gaps between its products
constexpr unsigned threads = groups * kit::warpgroup_threads;
using TileA = kit::SharedTile<__nv_bfloat16, 64 * groups, 64>;
using TileB = kit::SharedTile<__nv_bfloat16, 256, 64>;

struct Shared {
  alignas(1024) unsigned char a[TileA::bytes];
  alignas(1024) unsigned char b[TileB::bytes];
};

__device__ void fill(unsigned char* bytes, unsigned count) {
  auto* const to = reinterpret_cast<__nv_bfloat16*>(bytes);
  for (unsigned i = threadIdx.x; i < count / 2; i += threads) {
    const unsigned bits = (i * 2654435761u) ^ (i << 13);
    to[i] = __float2bfloat16(static_cast<float>(bits >> 8) * (2.0f / 16777216.0f) - 1.0f);
  }
}

__global__ void __launch_bounds__(threads, 1) multiply_in_place(unsigned rounds, float* out) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  fill(shared.a, TileA::bytes);
  fill(shared.b, TileB::bytes);
  kit::fence_shared_to_async();
  __syncthreads();
  const auto a =
      kit::Operand<TileA>::at(kit::shared_address(shared.a)).from_row(64 * kit::warpgroup_index());
  const auto b = kit::Operand<TileB>::at(kit::shared_address(shared.b));
  float d[128];
  for (unsigned round = 0; round < rounds; ++round) {
    kit::wgmma_fence();
#pragma unroll
    for (unsigned k = 0; k < TileA::slices; ++k) {
      kit::multiply(d, a.slice(k), b.slice(k), round > 0 || k > 0);
    }
    kit::wgmma_commit();
    kit::wgmma_wait<1>();
  }
  kit::wgmma_wait<0>(d);
  if (out == nullptr) return;  // always; unread, the sums would not be kept in registers
#pragma unroll
  for (unsigned i = 0; i < 128; ++i) out[i * threads + threadIdx.x] = d[i];
}

}  // namespace

std::vector<TensorRounds> tensor_rounds(const Size& size) {
  const double round = 2.0 * 64 * 256 * 64 * groups * ladder::multiprocessors();
  const auto rounds = static_cast<unsigned>(size.flops() / round) + 64;
  return {{rounds, rounds * round}, {2 * rounds, 2 * rounds * round}};
}

double tensor_ceiling(const std::vector<TensorRounds>& lengths,
                      const std::vector<double>& seconds) {
  return (lengths[1].flops - lengths[0].flops) / (seconds[1] - seconds[0]);
}

void enqueue_tensor_work(unsigned rounds, cudaStream_t stream) {
  kit::launch(multiply_in_place,
              {.grid = ladder::multiprocessors(), .block = threads, .shared_bytes = sizeof(Shared)},
              stream, rounds, static_cast<float*>(nullptr));
}

}  // namespace gemm
