// Matrix products of 16-bit matrices, out = a * transpose(b), with f32 sums.
//
//   ps::gemm({.a = a, .b = b, .out = out}, stream);
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

// The kernels on a GPU. The same call with the same kernel gives the same bits every time. All sm90
// kernels give the same bits, except those that split K, which add up in another order. `best`
// always takes the same kernel for the same sizes and alignment, until `penstock tune` is run.
enum class GemmKernel : std::uint8_t {
  best,      // the kernel that `penstock tune` has measured to be fastest here, else an estimate
  portable,  // mma.sync, for compute capability 8.0 and later, any sizes and strides

  // wgmma, for compute capability 9.0. Named after the rows and columns of out that a block
  // computes at a time; `cluster2`: pairs of blocks share what they load of b; `split2`: pairs of
  // blocks compute the same tile, each half of K, which keeps more of the GPU busy if M is small.
  sm90_128x256_cluster2,
  sm90_128x256,
  sm90_192x192_cluster2,
  sm90_128x224_cluster2,
  sm90_128x192_cluster2,
  sm90_128x128,
  sm90_64x192_cluster2,
  sm90_64x128_cluster2,
  sm90_64x128,
  sm90_64x64,
  sm90_128x128_pingpong,  // one half of a block multiplies while the other stores
  sm90_64x256_pingpong,
  sm90_64x128_split2,
  sm90_64x64_split2,
  sm90_128x256_cp_async,  // loads by cp.async, for rows that are not aligned to cache lines
  sm90_64x128_cp_async,
};

// All of them, `best` first, and their names as above.
std::span<const GemmKernel> gemm_kernels();
std::string_view name(GemmKernel kernel);

struct GemmOptions {
  TensorView a{};    // (M, K), bf16 or f16. Rows may be strided
  TensorView b{};    // (N, K), the type of a. Rows may be strided
  TensorView out{};  // (M, N), the type of a. Rows may be strided; apart from a and b
  GemmKernel kernel = GemmKernel::best;  // ignored on the CPU
};

// Computes out[i, j] = sum over k of a[i, k] * b[j, k], rounded once to the type of out. M, N and K
// are any numbers from 0 to 2^31 - 1; if K is 0, out is filled with zeros. The elements of a row
// follow each other in memory.
//
// The sm90 kernels need N and K that are multiples of 8, K of at least 8, data at multiples of 16
// bytes, and rows in ascending order that do not overlap and begin at multiples of 16 bytes. Other
// calls run the portable kernel, which is slower.
//
// Enqueues and returns; may be captured. Throws InvalidArgument naming the argument, and
// Unsupported on GPUs below compute capability 8.0 and for kernels that the GPU cannot run.
void gemm(const GemmOptions& options, const Stream& stream);

}  // namespace ps
