// A call of attention() with checked arguments, and the ways to run it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "ops/attention/mask.h"
#include "penstock/base/dtype.h"
#include "penstock/host/parallel.h"
#include "penstock/host/stream.h"
#include "penstock/kit/config.h"
#include "penstock/kit/scheduler.h"
#include "penstock/ops/attention.h"

namespace ps::detail {

struct AppendWork;

// In elements. Elements of a row follow each other. `batch` is 0 for sequences one after the other.
struct AttentionStrides {
  std::int64_t batch = 0, row = 0, head = 0;

  PENSTOCK_HD constexpr std::int64_t at(std::int64_t b, std::int64_t r, std::int64_t h) const {
    return b * batch + r * row + h * head;
  }
};

// Where a sequence is: its rows in q and in k, counted from the first row of its batch, which is
// row 0 of all for sequences one after the other.
struct AttentionSequence {
  std::int32_t q_begin = 0, q_length = 0;
  std::int32_t k_begin = 0, k_length = 0;
};

// Where all sequences are. Kernels take it by value.
struct AttentionSequences {
  std::int32_t count = 0;                   // B
  std::int32_t q_rows = 0, k_rows = 0;      // of a batch, or of all sequences
  std::int32_t max_q = 0, max_k = 0;        // no sequence has more rows; at most q_rows and k_rows
  const std::int32_t* cu_q = nullptr;       // (B + 1); null: all sequences have q_rows rows
  const std::int32_t* cu_k = nullptr;       // the same for k
  const std::int32_t* first_k = nullptr;    // (B); null: 0
  const std::int32_t* lengths_k = nullptr;  // (B); null: all rows
  // Every row of q has a row of k, behind the lengths_k rows that its sequence had, or `had` rows
  // if lengths_k is null.
  bool appends = false;
  std::int32_t had = 0;

  // Reads the arrays of lengths, in device memory on a GPU. Whatever they hold, the rows are inside
  // q and k.
  PENSTOCK_HD constexpr AttentionSequence operator()(std::int32_t b) const {
    AttentionSequence found{0, q_rows, 0, k_rows};
    if (cu_q != nullptr) {
      found.q_begin = clamped(cu_q[b], 0, q_rows);
      found.q_length = clamped(cu_q[b + 1], found.q_begin, q_rows) - found.q_begin;
    }
    if (cu_k != nullptr) {
      found.k_begin = clamped(cu_k[b], 0, k_rows);
      found.k_length = clamped(cu_k[b + 1], found.k_begin, k_rows) - found.k_begin;
    }
    const std::int32_t appended = found.q_length;
    if (found.q_length > max_q) found.q_length = max_q;
    if (found.k_length > max_k) found.k_length = max_k;
    if (appends) {
      const std::int32_t before = lengths_k != nullptr ? lengths_k[b] : had;
      found.k_length = clamped(clamped(before, -q_rows, k_rows) + appended, 0, found.k_length);
    } else if (lengths_k != nullptr) {
      found.k_length = clamped(lengths_k[b], 0, found.k_length);
    }
    if (first_k != nullptr) {
      const std::int32_t first = clamped(first_k[b], 0, found.k_length);
      found.k_begin += first;
      found.k_length -= first;
    }
    return found;
  }

 private:
  PENSTOCK_HD static constexpr std::int32_t clamped(std::int32_t value, std::int32_t least,
                                                    std::int32_t most) {
    return value < least ? least : value > most ? most : value;
  }
};

// A row of k and v in their memory, for AttentionStrides::at().
struct AttentionPlace {
  std::int64_t batch = 0, row = 0;
  bool there = true;  // false: a row of zeros, and batch and row are 0
};

// The pages in which k and v are stored, if any. Their strides then have the page as the batch.
// Kernels take it by value.
struct AttentionPages {
  const std::int32_t* table = nullptr;  // (B, most pages of a sequence); null: no pages
  std::int64_t stride = 0;              // between the sequences of the table
  std::int32_t count = 0;
  kit::Divisor rows{};  // of a page

  // Where row `row` of sequence b is, below AttentionSequences::k_rows. Reads the table.
  PENSTOCK_HD AttentionPlace operator()(std::int64_t b, std::int64_t row) const {
    if (table == nullptr) return {b, row};
    const unsigned number = rows.divide(static_cast<unsigned>(row));
    const std::int32_t page = table[b * stride + number];
    if (page < 0 || page >= count) return {0, 0, false};
    return {page, row - std::int64_t{number} * rows.value()};
  }
};

// Kernels on Hopper load whole boxes of keys and values through tensor maps. What they load ends at
// most this many rows behind the last row of a sequence, and inside k and v. A cache in which only
// some rows have memory must have it for these rows, too.
inline constexpr std::int32_t attention_rows_behind = 128;

// An entry of the table of tiles.
inline constexpr std::int64_t attention_tile_bytes = 32;

// The decode kernels: the most parts into which the work is cut, and the rows of a tile; for
// results that do not depend on other sequences, the chunks into which a sequence is cut at most,
// and the keys that a chunk has at least.
inline constexpr std::int32_t attention_decode_parts = 512;
inline constexpr std::int32_t attention_decode_rows = 64;
inline constexpr std::int32_t attention_decode_chunks = 16;
inline constexpr std::int32_t attention_decode_chunk_keys = 1024;
inline constexpr std::int64_t attention_joint_bytes = 16;

// The workspace of the decode kernels: offsets in bytes. Nothing in it is initialised.
struct AttentionDecodeSpace {
  std::size_t joints = 0;                                              // one per part
  std::size_t stats = attention_decode_parts * attention_joint_bytes;  // {maximum, sum} per row
  std::size_t sums = 0;                                                // f32 (rows, Dv)
  std::int32_t tile_rows = 0;  // of a slot: two slots per part
  std::int32_t chunks = 0;     // above 0: one row per row of the result and chunk instead
  std::size_t bytes = 0;
};

// `results` are the rows of out, of all heads.
constexpr AttentionDecodeSpace attention_decode_space(std::int64_t results, std::int64_t group,
                                                      std::int64_t max_q, std::int64_t max_k,
                                                      std::int64_t dim_v, bool chunked) {
  AttentionDecodeSpace space;
  std::int64_t rows = 0;
  if (chunked) {
    // Blocks of keys need not begin with the first key.
    const std::int64_t chunks = max_k / attention_decode_chunk_keys + 2;
    space.chunks = chunks < attention_decode_chunks ? static_cast<std::int32_t>(chunks)
                                                    : attention_decode_chunks;
    rows = results * space.chunks;
  } else {
    const std::int64_t all = max_q * group;
    space.tile_rows =
        all < attention_decode_rows ? static_cast<std::int32_t>(all) : attention_decode_rows;
    rows = 2 * std::int64_t{attention_decode_parts} * space.tile_rows;
  }
  const auto padded = [](std::int64_t bytes) {
    return static_cast<std::size_t>((bytes + 255) / 256 * 256);
  };
  space.sums = space.stats + padded(rows * 8);
  space.bytes = space.sums + padded(rows * dim_v * 4);
  return space;
}

// The parts of a workspace on a GPU: offsets in bytes. Nothing in it is initialised.
struct AttentionWorkspace {
  std::size_t counters = 0;  // 64 u32
  std::size_t tiles = 256;   // `most_tiles` entries
  std::int64_t most_tiles = 0;
  std::size_t bytes = 256;
};

// Tiles of 64 or more queries of all sequences: no more than one per 64 rows and one per sequence.
// A table of tiles is needed only if sequences have several lengths.
constexpr AttentionWorkspace attention_workspace(std::int64_t q_rows, std::int64_t sequences,
                                                 bool several_lengths) {
  AttentionWorkspace space;
  if (several_lengths) space.most_tiles = q_rows / 64 + sequences;
  space.bytes = space.tiles + static_cast<std::size_t>(
                                  (space.most_tiles * attention_tile_bytes + 255) / 256 * 256);
  return space;
}

struct AttentionWork {
  AttentionSequences sequences{};
  AttentionPages pages{};
  std::int32_t heads_q = 0, heads_k = 0;  // Hq is a multiple of Hk, both at least 1
  std::int32_t dim = 0, dim_v = 0;        // D and Dv: multiples of 8, 8 to 256
  DType type = DType::bf16;               // of q, k, v and out: bf16, f16 or f32
  AttentionKernel kernel = AttentionKernel::best;
  std::size_t shared_bytes = 0;  // that a block of threads may have, on a GPU

  // Strides may be 0 or negative, except those of out. On a GPU all strides and addresses are
  // multiples of 16 bytes. A dimension of extent 1 has the stride it would have if contiguous.
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  AttentionStrides q_strides{}, k_strides{}, v_strides{}, out_strides{};

  float* lse = nullptr;  // null: not wanted. Element (b, h, i) is at the strides' at(b, i, h)
  AttentionStrides lse_strides{};

  AttentionReach reach{};       // causal and window in one
  float scale = 0;              // not 0
  float softcap = 0;            // 0: none
  const void* sinks = nullptr;  // null: none
  DType sink_type = DType::f32;

  bool batch_invariant = false;

  // New rows of k and v, which the call writes first, and the rotation of q. Null: none. Only if
  // the decode kernels compute the call.
  const AppendWork* append = nullptr;

  AttentionWorkspace space{};
  AttentionDecodeSpace decode_space{};  // no bytes if the decode kernels do not run
  std::byte* memory = nullptr;          // of either, aligned to 256; null on the CPU

  // At least those of the other kernels, which run in place of the decode kernels where these
  // cannot.
  std::size_t memory_bytes() const {
    return decode_space.bytes > space.bytes ? decode_space.bytes : space.bytes;
  }

  // Whether the decode kernels compute the call on a GPU.
  bool decodes() const { return decode_space.bytes > 0; }

  std::int32_t group() const { return heads_q / heads_k; }  // query heads per head of k
};

// Whether the decode kernels suit a call of which no sequence has more than max_q queries, or are
// named.
constexpr bool attention_decodes(AttentionKernel kernel, std::int64_t max_q) {
  constexpr std::int64_t few = 16;
  if (kernel == AttentionKernel::best) return max_q <= few;
  return kernel == AttentionKernel::decode || kernel == AttentionKernel::decode_portable;
}

// The work has at least one sequence and a row of q. There may be no row of k.
void attention_cpu(const AttentionWork& work, const Stream& stream);
// The same at once. `run_ranges` is parallel_ranges(), or what a test has in its place.
using RunRanges =
    std::function<void(std::size_t count, std::size_t grain,
                       const std::function<void(std::size_t begin, std::size_t end)>& work)>;
void compute_attention(const AttentionWork& work, const RunRanges& run_ranges = parallel_ranges);
// `kernel` may be `best`.
void attention_gpu(const AttentionWork& work, const Stream& stream);

// Whether the sm90 kernels take a call. Without keys, for which there are no tensor maps, the
// portable kernel runs in their place.
bool attention_fits_sm90(const AttentionWork& work);
// What of a call they do not take, for an error: "takes ..., and q is ...".
std::string attention_sm90_limit(const AttentionWork& work);
// The same for the decode kernel that loads through tensor maps.
bool attention_decode_fits_sm90(const AttentionWork& work);

}  // namespace ps::detail
