// A call of append_kv() with checked arguments, and the ways to run it.
#pragma once

#include <cstdint>

#include "ops/transform/functions.h"
#include "penstock/base/dtype.h"
#include "penstock/host/stream.h"
#include "penstock/kit/config.h"
#include "penstock/ops/append_kv.h"

namespace ps::detail {

// Rows of heads, in elements. `batch` is 0 for the rows of several sequences one after the other.
struct AppendRows {
  void* data = nullptr;
  std::int64_t batch = 0, row = 0, head = 0;

  PENSTOCK_HD constexpr std::int64_t at(std::int64_t b, std::int64_t r) const {
    return b * batch + r * row;
  }
};

// Where a new row comes from and goes to.
struct AppendPlace {
  bool any = false;           // it is a row of a sequence
  bool kept = false;          // the cache has room for it
  std::int64_t batch = 0;     // of k, v and q
  std::int64_t row = 0;       // of k, v and q
  std::int64_t page = 0;      // of the cache: the sequence, or its page
  std::int64_t slot = 0;      // the row in there
  std::int64_t length = 0;    // the row in the sequence
  std::int64_t position = 0;  // inside the tables, if there are any
};

struct AppendWork {
  std::int32_t sequences = 0;  // B
  std::int64_t rows = 0;       // new rows of all sequences, fewer than 2^31
  std::int64_t each = 0;       // new rows of a sequence; without meaning if there is cu_new
  std::int32_t heads_k = 0, heads_q = 0;  // heads_q is 0 without q
  std::int32_t dim = 0, dim_v = 0;
  std::int32_t rotated = 0;  // R; 0: none
  RotaryPairs pairs = RotaryPairs::halves;
  DType type = DType::bf16;       // of k, v, q and the cache
  DType table_type = DType::f32;  // of cos and sin

  AppendRows k{}, v{}, q{};  // data is only read
  AppendRows q_out{}, k_cache{}, v_cache{};

  const std::int32_t* pages = nullptr;  // null: the cache is contiguous
  std::int64_t pages_row = 0;           // stride, in elements
  std::int64_t page_count = 0;          // B without pages
  std::int64_t page_rows = 1;           // S without pages
  std::int64_t capacity = 0;            // rows of a sequence, fewer than 2^31

  const std::int32_t* cu_new = nullptr;
  std::int32_t* lengths = nullptr;
  std::int64_t length = 0;
  bool advance = false;

  const void* cos = nullptr;
  const void* sin = nullptr;
  std::int64_t cos_row = 0, sin_row = 0;  // strides, in elements
  std::int64_t table_rows = 0;
  const void* positions = nullptr;  // null: the rows in the sequence
  bool wide_positions = false;      // i64, else i32

  // These read arrays in device memory on a GPU. Whatever they hold, the places are inside the
  // arguments.
  PENSTOCK_HD constexpr std::int64_t length_of(std::int32_t sequence) const {
    return lengths != nullptr ? lengths[sequence] : length;
  }
  // The first new row of a sequence among those of all, and their number.
  PENSTOCK_HD constexpr std::int64_t first_of(std::int32_t sequence) const {
    return cu_new == nullptr ? sequence * each : clamped(cu_new[sequence], 0, rows);
  }
  PENSTOCK_HD constexpr std::int64_t new_rows_of(std::int32_t sequence) const {
    if (cu_new == nullptr) return each;
    const std::int64_t begin = first_of(sequence);
    return clamped(cu_new[sequence + 1], begin, rows) - begin;
  }
  PENSTOCK_HD constexpr std::int64_t advanced(std::int32_t sequence) const {
    return clamped(length_of(sequence) + new_rows_of(sequence), 0, capacity);
  }
  // Where new row `row` of all sequences is, and new row `number` of a sequence.
  PENSTOCK_HD AppendPlace place(std::int64_t row) const {
    if (cu_new == nullptr) {
      const auto sequence = static_cast<std::int32_t>(row / each);
      return place(sequence, row - sequence * each);
    }
    const std::int32_t sequence = sequence_of(row);
    return sequence < 0 ? AppendPlace{} : place(sequence, row - cu_new[sequence]);
  }
  PENSTOCK_HD AppendPlace place(std::int32_t sequence, std::int64_t number) const {
    AppendPlace found;
    found.any = true;
    found.batch = cu_new == nullptr ? sequence : 0;
    found.row = number + (cu_new == nullptr ? 0 : first_of(sequence));
    found.length = length_of(sequence) + number;
    found.kept = found.length >= 0 && found.length < capacity;
    if (found.kept) {
      found.page = sequence;
      found.slot = found.length;
      if (pages != nullptr) {
        const std::int64_t number_of_page = found.length / page_rows;
        found.page = pages[sequence * pages_row + number_of_page];
        found.slot = found.length - number_of_page * page_rows;
        found.kept = found.page >= 0 && found.page < page_count;
      }
    }
    found.position = position(sequence, number);
    return found;
  }
  // The position of new row `number` of a sequence, inside the tables.
  PENSTOCK_HD constexpr std::int64_t position(std::int32_t sequence, std::int64_t number) const {
    const std::int64_t row = first_of(sequence) + number;
    return clamped(position_of(row, length_of(sequence) + number), 0, table_rows - 1);
  }
  PENSTOCK_HD constexpr std::int64_t position_of(std::int64_t row,
                                                 std::int64_t length_there) const {
    if (positions == nullptr) return length_there;
    return wide_positions ? static_cast<const std::int64_t*>(positions)[row]
                          : static_cast<const std::int32_t*>(positions)[row];
  }

 private:
  // The last sequence that begins at or before the row, if the row is before its end; else -1.
  PENSTOCK_HD constexpr std::int32_t sequence_of(std::int64_t row) const {
    std::int32_t first = 0, behind = sequences;
    while (first < behind) {
      const std::int32_t middle = first + (behind - first) / 2;
      if (cu_new[middle] <= row) {
        first = middle + 1;
      } else {
        behind = middle;
      }
    }
    const bool inside = first > 0 && cu_new[first - 1] >= 0 && row < cu_new[first];
    return inside ? first - 1 : -1;
  }
  PENSTOCK_HD static constexpr std::int64_t clamped(std::int64_t value, std::int64_t least,
                                                    std::int64_t most) {
    return value > most ? most < least ? least : most : value < least ? least : value;
  }
};

struct RotatedPair {
  float x, y;
};
// The same bits everywhere: the products are fused by name.
PENSTOCK_HD inline RotatedPair rotate_pair(float x, float y, float cos, float sin) {
  return {elementwise::fused(x, cos, -(y * sin)), elementwise::fused(y, cos, x * sin)};
}

void append_kv_cpu(const AppendWork& work, const Stream& stream);
// On a GPU of compute capability 8.0 or later. Throws DeviceError.
void append_kv_portable(const AppendWork& work, const Stream& stream);

// The same as append_kv_cpu() at once.
void compute_append_kv(const AppendWork& work);

// What `advance` adds, on the CPU at once and on a GPU.
void advance_lengths(const AppendWork& work);
void advance_lengths_portable(const AppendWork& work, const Stream& stream);

}  // namespace ps::detail
