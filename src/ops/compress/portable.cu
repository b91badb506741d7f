// The GPU's decompress(), for compute capability 8.0 and later: one thread block per segment, one
// thread per word of 16 codes. The lists are expanded from the last to the first, through shared
// memory; counts of codes 3, added up over the threads before, say where a thread's entries begin.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "ops/compress/format.h"
#include "ops/compress/work.h"
#include "ops/launch.h"
#include "penstock/host/cuda.h"
#include "penstock/kit/warp.cuh"

namespace ps::compression {
namespace {

using detail::DecompressWork;

constexpr unsigned threads = segment_values / word_codes;
constexpr unsigned warps = threads / kit::warp_threads;
constexpr unsigned blocks_per_multiprocessor = 6;  // what hides the latency of memory
constexpr unsigned all_lanes = 0xffffffffU;
static_assert(coded_lists == 3 && group_words == kit::warp_threads);

struct Shared {
  // Exponents of the lists in turn. A thread reads whole words, up to 8 bytes from its position.
  alignas(16) std::uint8_t lists[2][segment_values + unit];
  std::uint64_t missing[warps];
};

// Numbers of codes 3 in lists 0, 1 and 2, in 16 bits each.
__device__ std::uint64_t packed(unsigned in0, unsigned in1, unsigned in2) {
  return in0 | in1 << 16 | std::uint64_t{in2} << 32;
}
__device__ unsigned unpacked(std::uint64_t missing, unsigned list) {
  return static_cast<unsigned>(missing >> 16 * list) & 0xffff;
}

// Compressed data is read once: the hint keeps it from pushing other data out of L2.
template <class T>
__device__ T load(const std::byte* from) {
  return __ldcs(reinterpret_cast<const T*>(from));
}
template <class T>
__device__ T load_header(const std::byte* from) {
  union {
    uint4 words[sizeof(T) / 16];
    T header;
  } both = {};
#pragma unroll
  for (unsigned i = 0; i < sizeof(T) / 16; ++i) {
    both.words[i] = __ldg(reinterpret_cast<const uint4*>(from) + i);
  }
  return both.header;
}

// Writes 8 values, or those of them that the segment has.
__device__ void store(std::uint16_t* out, unsigned index, unsigned count, const uint4& values) {
  if (index + chunk_values <= count) {
    *reinterpret_cast<uint4*>(out + index) = values;
    return;
  }
  const std::uint32_t pairs[] = {values.x, values.y, values.z, values.w};
#pragma unroll
  for (unsigned j = 0; j < chunk_values; ++j) {
    if (index + j < count) {
      out[index + j] = static_cast<std::uint16_t>(pairs[j / 2] >> j % 2 * 16);
    }
  }
}

__device__ void store_undecodable(std::uint16_t* out, unsigned count) {
  constexpr std::uint32_t pair = std::uint32_t{undecodable} << 16 | undecodable;
  for (unsigned i = threadIdx.x * chunk_values; i < count; i += threads * chunk_values) {
    store(out, i, count, {pair, pair, pair, pair});
  }
}

__device__ void copy_stored(const std::byte* from, std::uint16_t* out, unsigned count) {
  for (unsigned i = threadIdx.x * chunk_values; i < count; i += threads * chunk_values) {
    store(out, i, count, load<uint4>(from + 2 * i));
  }
}

// What the threads before this one miss; `all` becomes what all threads miss. All threads of the
// block call it; it synchronises them.
__device__ std::uint64_t missing_before(std::uint64_t own, Shared& shared, std::uint64_t& all) {
  const unsigned lane = kit::lane_index(), warp = kit::warp_index();
  std::uint64_t up_to_own = own;
#pragma unroll
  for (unsigned distance = 1; distance < kit::warp_threads; distance *= 2) {
    const std::uint64_t other = __shfl_up_sync(all_lanes, up_to_own, distance);
    if (lane >= distance) up_to_own += other;
  }
  if (lane == kit::warp_threads - 1) shared.missing[warp] = up_to_own;
  __syncthreads();
  std::uint64_t before = up_to_own - own;
  all = 0;
#pragma unroll
  for (unsigned w = 0; w < warps; ++w) {
    if (w == warp) before += all;
    all += shared.missing[w];
  }
  return before;
}

// The exponents of four codes, which are in the nibbles of `codes`. Those of codes 3 come from the
// list, from `position` on, which moves on by their number.
__device__ std::uint32_t expand_four(std::uint32_t codes, std::uint32_t common,
                                     const std::uint8_t* list, unsigned& position) {
  const std::uint32_t missing = codes & codes >> 1 & 0x1111;
  const std::uint32_t so_far = missing * 0x1111;  // nibble i: the missing ones up to code i
  const auto* const words = reinterpret_cast<const std::uint32_t*>(list) + position / 4;
  const std::uint32_t next = __funnelshift_r(words[0], words[1], position * 8);
  position += so_far >> 12 & 0xf;
  // Bytes 0 to 2 are the common exponents, bytes 4 to 7 the next ones of the list: code 3 becomes
  // 3 + 1 for the first that is missing, 3 + 2 for the second, and so on.
  return __byte_perm(common, next, codes + (so_far & missing * 0xf));
}

// The exponents of a word, in the order of its codes.
__device__ uint4 expand(std::uint32_t word, const std::uint8_t (&common)[3],
                        const std::uint8_t* list, unsigned position) {
  const std::uint32_t bytes = common[0] | common[1] << 8 | common[2] << 16;
  const std::uint32_t lower = word & 0x33333333, upper = word >> 2 & 0x33333333;
  uint4 exponents;
  exponents.x = expand_four(lower & 0xffff, bytes, list, position);
  exponents.y = expand_four(lower >> 16, bytes, list, position);
  exponents.z = expand_four(upper & 0xffff, bytes, list, position);
  exponents.w = expand_four(upper >> 16, bytes, list, position);
  return exponents;
}

// joined() of two values, which are bytes 0 and 1 or bytes 2 and 3.
template <unsigned first>
__device__ std::uint32_t join_two(std::uint32_t exponents, std::uint32_t remaining) {
  constexpr unsigned twice = first == 0 ? 0x1100 : 0x3322, widened = first == 0 ? 0x4140 : 0x4342;
  constexpr std::uint32_t kept = 0x807f807f;
  return (__byte_perm(remaining, 0, twice) & kept) |
         (__byte_perm(exponents, 0, widened) << 7 & ~kept);
}
__device__ uint4 join_eight(std::uint32_t exponents0, std::uint32_t exponents1,
                            std::uint32_t remaining0, std::uint32_t remaining1) {
  return {join_two<0>(exponents0, remaining0), join_two<2>(exponents0, remaining0),
          join_two<0>(exponents1, remaining1), join_two<2>(exponents1, remaining1)};
}

// False if the segment cannot be decoded; nothing is written then. All threads of the block call
// it, and shared memory must be free.
__device__ bool decode_coded(const SegmentHeader& header, const SegmentLayout& layout,
                             const std::byte* from, unsigned count, std::uint16_t* out,
                             Shared& shared) {
  const unsigned t = threadIdx.x;
  uint4 remaining = {};
  std::uint32_t words[coded_lists];
#pragma unroll
  for (unsigned k = 0; k < coded_lists; ++k) {
    words[k] = t < layout.words[k] ? load<std::uint32_t>(from + layout.codes[k] + 4 * t) : 0;
  }
  if (t < layout.words[0]) remaining = load<uint4>(from + layout.remaining + word_codes * t);
  for (unsigned i = 4 * t; i < header.left[2]; i += 4 * threads) {
    *reinterpret_cast<std::uint32_t*>(shared.lists[1] + i) =
        load<std::uint32_t>(from + layout.last_list + i);
  }

  std::uint64_t all = 0;
  const std::uint64_t before =
      missing_before(packed(__popc(missing_in(words[0])), __popc(missing_in(words[1])),
                            __popc(missing_in(words[2]))),
                     shared, all);
  if (all != packed(header.left[0], header.left[1], header.left[2])) return false;

  auto* const list2 = reinterpret_cast<uint4*>(shared.lists[0]);
  auto* const list1 = reinterpret_cast<uint4*>(shared.lists[1]);
  if (t < layout.words[2]) {
    list2[t] = expand(words[2], header.common[2], shared.lists[1], unpacked(before, 2));
  }
  __syncthreads();
  if (t < layout.words[1]) {
    list1[t] = expand(words[1], header.common[1], shared.lists[0], unpacked(before, 1));
  }
  __syncthreads();
  if (t < layout.words[0]) {
    const uint4 exponents =
        expand(words[0], header.common[0], shared.lists[1], unpacked(before, 0));
    const unsigned first = first_value(t);
    store(out, first, count, join_eight(exponents.x, exponents.y, remaining.x, remaining.y));
    store(out, first + group_values / 2, count,
          join_eight(exponents.z, exponents.w, remaining.z, remaining.w));
  }
  return true;
}

__device__ bool decode(const DecompressWork& work, unsigned segment, unsigned count,
                       std::uint16_t* out, Shared& shared) {
  const std::byte* const offset = work.compressed + sizeof(Header) + std::uint64_t{4} * segment;
  const std::uint64_t begin =
      std::uint64_t{__ldg(reinterpret_cast<const std::uint32_t*>(offset))} * unit;
  const std::uint64_t most = begin < work.bytes ? work.bytes - begin : 0;
  if (most < sizeof(SegmentHeader)) return false;
  const std::byte* const from = work.compressed + begin;
  const auto header = load_header<SegmentHeader>(from);
  if (header.form == Form::stored) {
    if (most < stored_bytes(count)) return false;
    copy_stored(from + sizeof header, out, count);
    return true;
  }
  if (header.form != Form::coded || !lists_shrink(header)) return false;
  const SegmentLayout layout(header, count);
  return most >= layout.bytes && decode_coded(header, layout, from, count, out, shared);
}

__global__ void __launch_bounds__(threads, blocks_per_multiprocessor)
    decompress_kernel(DecompressWork work) {
  __shared__ Shared shared;
  const auto header = load_header<Header>(work.compressed);
  const bool fits = header_fits(header, work.elements, work.bytes);
  const auto segments = static_cast<unsigned>(segments_of(work.elements));
  for (unsigned s = blockIdx.x; s < segments; s += gridDim.x) {
    std::uint16_t* const out = work.out + std::uint64_t{s} * segment_values;
    const unsigned count = values_of(work.elements, s);
    if (!fits || !decode(work, s, count, out, shared)) store_undecodable(out, count);
    __syncthreads();  // the next segment writes shared memory
  }
}

}  // namespace
}  // namespace ps::compression

namespace ps::detail {

void decompress_portable(const DecompressWork& work, const Stream& stream) {
  using namespace compression;
  const auto segments = static_cast<unsigned>(segments_of(work.elements));
  const unsigned blocks =
      work.thread_blocks > 0 ? std::min(work.thread_blocks, segments) : segments;
  DecompressWork copied = work;
  void* arguments[] = {&copied};
  launch_on(stream, "launching decompress", [&] {
    return cudaLaunchKernel(reinterpret_cast<const void*>(decompress_kernel), dim3(blocks),
                            dim3(threads), arguments, 0, cuda_stream(stream));
  });
}

void load_decompress_portable(const Device& device) {
  const CurrentGpu current(device);
  cudaFuncAttributes attributes{};  // asking for them loads the kernel
  backend_of(device).check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(
                                                                  compression::decompress_kernel)),
                           "loading decompress");
}

}  // namespace ps::detail
