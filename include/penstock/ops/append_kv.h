// Writes new rows of K and V behind the rows that a key-value cache has, and rotates K, and q, by
// their positions (rotary embedding) in the same pass.
//
//   ps::append_kv({.k = k, .v = v, .k_cache = k_cache, .v_cache = v_cache, .lengths = lengths,
//                  .cos = cos, .sin = sin}, stream);
//
// The cache is contiguous, with room for the same number of rows in every sequence, or consists of
// pages, each of which belongs to one or more sequences.
#pragma once

#include <cstdint>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

// Which elements of a head's row the rotary embedding rotates together, where R is twice the last
// extent of `cos`.
enum class RotaryPairs : std::uint8_t {
  halves,      // i and i + R / 2, for i < R / 2, as in Llama and GPT-NeoX
  neighbours,  // 2 i and 2 i + 1, as in GPT-J
};

struct AppendKVOptions {
  // The new rows. The same number for every sequence: (B, Snew, Hk, D) and (B, Snew, Hk, Dv),
  // sequences, rows, heads, head dimension. Several numbers: (rows of all sequences, Hk, D) and
  // (rows, Hk, Dv), with `cu_new`. The last dimension is contiguous, the others may have any
  // strides.
  TensorView k{};  // bf16, f16 or f32
  TensorView v{};  // of the type of k

  // The cache: (B, S, Hk, D) and (B, S, Hk, Dv), with room for S rows per sequence. With `pages`:
  // (pages, rows of a page, Hk, D) and (pages, rows of a page, Hk, Dv). Of the type of k, with any
  // strides and a contiguous last dimension; the elements of k_cache and v_cache may alternate in
  // memory if both have the same strides.
  TensorView k_cache{}, v_cache{};
  // (B, most pages of a sequence), i32, the last dimension contiguous: row r of sequence b is row
  // r % page rows of page pages[b][r / page rows]. Read on the stream. Optional.
  TensorView pages{};

  // (B + 1), i32, contiguous: the new rows of sequence b are rows [cu_new[b], cu_new[b + 1]) of k
  // and v. Read on the stream. Optional.
  TensorView cu_new{};
  // (B), i32, contiguous: the rows that each sequence has, and so the row of its first new one.
  // Read on the stream. If empty, every sequence has `length` rows. Without `cu_new`, there are at
  // most as many new rows as a sequence has room for.
  TensorView lengths{};
  std::int64_t length = 0;
  // Adds the number of new rows to `lengths` behind the call's other work. The result is at most
  // the capacity of a sequence.
  bool advance = false;

  // (positions, R / 2), f32 or the type of k, the last dimension contiguous: cosines and sines of
  // the angles. R is even and at most D; elements of a head's row from R on are not rotated. Pairs
  // (x, y) become (x cos - y sin, y cos + x sin), computed in f32. Give both or neither.
  TensorView cos{}, sin{};
  RotaryPairs pairs = RotaryPairs::halves;
  // (B, Snew), or (rows) with `cu_new`, i32 or i64, contiguous: the positions of the new rows. Read
  // on the stream. If empty, a row's position is its row in the sequence.
  TensorView positions{};
  // (B, Snew, Hq, D), or (rows, Hq, D) with `cu_new`: rows of q to be rotated by the positions of
  // the new rows, into q_out, which may be q itself. Of the type of k. Optional; both or neither,
  // and only with `cos`.
  TensorView q{}, q_out{};

  // Waits for the arrays that are read on the stream, and throws InvalidArgument, before anything
  // is written, if they are not as described, or if a sequence has no room for its new rows.
  // Without it such rows are left out: nothing is written outside the cache or in a wrong page.
  // Positions outside the tables are clamped.
  bool check = false;
};

// Enqueues and returns, without waiting for the device unless `check` is set; may be captured
// unless `check` is set. Any B and Snew, including 0; up to 65535 heads of dimensions from 1 to
// 4096. Without new rows a call does nothing. Head rows that are multiples of 16 bytes and begin at
// such multiples are fastest on a GPU.
//
// The results have the same bits on the CPU and on every GPU, NaNs aside. Elements that are not
// rotated are copied bit by bit. k_cache, v_cache, q_out and, with `advance`, lengths must not
// overlap each other or the inputs; q_out may be q. Throws InvalidArgument naming the argument,
// and Unsupported on GPUs of a compute capability below 8.0.
void append_kv(const AppendKVOptions& options, const Stream& stream);

}  // namespace ps
