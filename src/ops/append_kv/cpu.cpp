#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "ops/append_kv/cpu.h"
#include "ops/append_kv/work.h"
#include "ops/cpu_rows.h"
#include "penstock/host/parallel.h"

namespace ps::appending {
namespace {

using detail::AppendPlace;
using detail::AppendRows;
using detail::AppendWork;

constexpr std::int64_t grain = 16 * 1024;  // elements; fewer are not worth waking a thread for

template <RotaryPairs pairs>
void rotate_row(const float* from, const float* cos, const float* sin, std::size_t count,
                float* to) {
  constexpr bool halves = pairs == RotaryPairs::halves;
  const std::size_t apart = halves ? count : 1, each = halves ? 1 : 2;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t x = each * i, y = x + apart;
    const auto pair = detail::rotate_pair(from[x], from[y], cos[i], sin[i]);
    to[x] = pair.x;
    to[y] = pair.y;
  }
}

detail::RotateRow rotation(RotaryPairs pairs) {
  static const detail::RotateRows fast = detail::rotate_rows_avx2();
  const detail::RotateRows rows = fast.halves != nullptr ? fast : detail::rotate_rows_baseline();
  return pairs == RotaryPairs::halves ? rows.halves : rows.neighbours;
}

// Copies and rotates head rows of a new row after the other.
class Writer {
 public:
  explicit Writer(const AppendWork& work)
      : work_(work),
        size_(size_of(work.type)),
        cos_(half()),
        sin_(half()),
        from_(rotated()),
        to_(rotated()),
        rotate_(rotation(work.pairs)) {}

  void write(std::int64_t row) {
    const AppendPlace place = work_.place(row);
    if (!place.any) return;
    if (work_.rotated > 0) read_tables(place.position);
    for (std::int32_t h = 0; h < work_.heads_q; ++h) {
      rotate(at(work_.q_out, place.batch, place.row, h), at(work_.q, place.batch, place.row, h));
    }
    if (!place.kept) return;
    for (std::int32_t h = 0; h < work_.heads_k; ++h) {
      rotate(at(work_.k_cache, place.page, place.slot, h), at(work_.k, place.batch, place.row, h));
      std::memcpy(at(work_.v_cache, place.page, place.slot, h),
                  at(work_.v, place.batch, place.row, h), bytes(work_.dim_v));
    }
  }

 private:
  std::size_t rotated() const { return static_cast<std::size_t>(work_.rotated); }
  std::size_t half() const { return rotated() / 2; }
  std::size_t bytes(std::int64_t elements) const {
    return static_cast<std::size_t>(elements) * size_;
  }

  std::byte* at(const AppendRows& rows, std::int64_t batch, std::int64_t row,
                std::int32_t head) const {
    return static_cast<std::byte*>(rows.data) +
           (rows.at(batch, row) + head * rows.head) * static_cast<std::int64_t>(size_);
  }

  void read_tables(std::int64_t position) {
    const auto size = static_cast<std::int64_t>(size_of(work_.table_type));
    const auto read = [&](const void* table, std::int64_t stride, std::vector<float>& to) {
      const auto* row = static_cast<const std::byte*>(table) + position * stride * size;
      detail::widen_row(row, work_.table_type, to.data(), half());
    };
    read(work_.cos, work_.cos_row, cos_);
    read(work_.sin, work_.sin_row, sin_);
  }

  void rotate(std::byte* to, const std::byte* from) {
    const std::size_t begin = bytes(work_.rotated);
    if (to != from) std::memcpy(to + begin, from + begin, bytes(work_.dim) - begin);
    if (begin == 0) return;
    detail::widen_row(from, work_.type, from_.data(), rotated());
    rotate_(from_.data(), cos_.data(), sin_.data(), half(), to_.data());
    detail::narrow_row(to_.data(), work_.type, to, rotated());
  }

  const AppendWork& work_;
  std::size_t size_;
  std::vector<float> cos_, sin_, from_, to_;
  detail::RotateRow rotate_;
};

void run(const AppendWork& work) {
  const std::int64_t elements =
      std::int64_t{work.heads_k} * (work.dim + work.dim_v) + std::int64_t{work.heads_q} * work.dim;
  const auto rows = static_cast<std::size_t>(std::max<std::int64_t>(1, grain / elements));
  parallel_ranges(static_cast<std::size_t>(work.rows), rows,
                  [&](std::size_t begin, std::size_t end) {
                    Writer writer(work);
                    for (std::size_t row = begin; row < end; ++row) {
                      writer.write(static_cast<std::int64_t>(row));
                    }
                  });
  if (work.advance) detail::advance_lengths(work);
}

}  // namespace
}  // namespace ps::appending

namespace ps::detail {

RotateRows rotate_rows_baseline() {
  return {appending::rotate_row<RotaryPairs::halves>,
          appending::rotate_row<RotaryPairs::neighbours>};
}

void append_kv_cpu(const AppendWork& work, const Stream& stream) {
  stream.call([work] { compute_append_kv(work); });
}

void compute_append_kv(const AppendWork& work) { appending::run(work); }

void advance_lengths(const AppendWork& work) {
  for (std::int32_t b = 0; b < work.sequences; ++b) {
    work.lengths[b] = static_cast<std::int32_t>(work.advanced(b));
  }
}

}  // namespace ps::detail
