// Lossless compression of bf16 weights, for links and disks that are slower than the GPU.
//
//   // `room` has compressed_bytes_limit(weights.elements()) bytes of host memory.
//   const std::size_t bytes = ps::compress({.x = weights, .out = room});
//   // Copy `bytes` bytes to the GPU, then:
//   ps::decompress({.compressed = copied, .out = weights_there}, stream);
//
// Weights use few of the 256 exponents that bf16 has, so exponents are coded in fewer bits; signs
// and mantissas are kept as they are. Normally distributed weights take 0.67 of their bytes. Any
// values come back bit by bit, NaN payloads included; values that do not compress take 0.3 % more
// than their bytes. docs/ops/compress.md describes the format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

// The most bytes that `elements` bf16 values take when compressed. Throws InvalidArgument for a
// negative number and for more than 2^34 elements.
std::size_t compressed_bytes_limit(std::int64_t elements);

struct CompressOptions {
  TensorView x{};    // bf16, contiguous, any shape; at most 2^34 elements
  TensorView out{};  // u8, one dimension, contiguous: compressed_bytes_limit() bytes always suffice
};

// Compresses `x` on all cores and returns the number of bytes written. Both arrays are in host
// memory (pageable or page-locked) and do not overlap. The bytes depend on the values alone, not on
// the number of threads; the shape is not stored. Blocks until done.
//
// Throws InvalidArgument naming the argument, also if `out` is too small: the message says how many
// bytes are needed, and nothing is written.
std::size_t compress(const CompressOptions& options);

struct CompressedInfo {
  std::int64_t elements = 0;
  std::size_t bytes = 0;  // of the compressed data, including its header
};

// Reads the header of compressed data in host memory: u8, one dimension, contiguous. Throws
// InvalidArgument if it is not the header of compressed data, or if the data is truncated. Bytes
// after the end of the data are ignored. The values themselves have no checksum.
CompressedInfo compressed_info(const TensorView& compressed);

struct DecompressOptions {
  // u8, one dimension, contiguous, aligned to 16 bytes; may extend past the end of the data. On a
  // GPU: its own memory, or page-locked memory, which the kernel then reads over the link.
  TensorView compressed{};
  TensorView out{};  // bf16, contiguous, any shape with the number of elements that was compressed;
                     // aligned to 16 bytes, in memory of the stream's device
  // The most thread blocks that the GPU runs at once, to leave the rest of the GPU to other
  // kernels. Up to 6 of them share a multiprocessor. 0: no limit.
  int thread_blocks = 0;
};

// Decompresses on the stream's device. `out` must not overlap `compressed`. The CPU and every GPU
// write the same bits.
//
// The data is read only when the stream gets there, so the call cannot report damage. Wrong data
// never leads to an access outside of the two arrays: values that cannot be decoded are written as
// NaN with all bits set (0xFFFF), in units of 4096 values, and all of them if the header is wrong
// or holds another number of elements. Damage that leaves the structure intact gives other values.
// Use compressed_info() to check the header on the host, and a checksum of your own where data may
// be damaged.
//
// Enqueues and returns; may be captured. Throws InvalidArgument naming the argument, and
// Unsupported on GPUs below compute capability 8.0.
void decompress(const DecompressOptions& options, const Stream& stream);

}  // namespace ps
