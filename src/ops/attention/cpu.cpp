// The CPU's attention(): softmax over one block of keys after the other. A task is a tile of rows
// of one head of k, so that every result is computed by one thread, in the same order however the
// tasks are divided. The rows of a tile are queries of all heads that use this head of k.
#include "ops/attention/cpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention/work.h"
#include "ops/cpu_product.h"
#include "ops/cpu_rows.h"
#include "penstock/base/checked.h"
#include "penstock/host/parallel.h"

namespace ps::detail {
namespace {

constexpr std::size_t tile_rows = ProductBlock::most_rows;
constexpr std::size_t block_keys = ProductBlock::most_columns;

// The functions of the instruction set of the product of f32: both need the same.
const AttentionRows& best_rows() {
  static const AttentionRows& best = [&]() -> const AttentionRows& {
    if (product_kernel(InstructionSet::avx512, DType::f32) != nullptr) {
      return *attention_rows_avx512();
    }
    if (product_kernel(InstructionSet::avx2, DType::f32) != nullptr) return *attention_rows_avx2();
    return *attention_rows_baseline();
  }();
  return best;
}

const std::byte* element_at(const void* array, std::int64_t index, DType type) {
  return static_cast<const std::byte*>(array) + index * static_cast<std::int64_t>(size_of(type));
}

// Rows of a sequence that one task computes.
struct Tile {
  std::int32_t sequence = 0;
  std::int64_t first = 0;  // row i * group + the head in its group
};

std::vector<Tile> tiles_of(const AttentionWork& work) {
  std::vector<Tile> tiles;
  for (std::int32_t b = 0; b < work.sequences.count; ++b) {
    const std::int64_t rows = std::int64_t{work.sequences(b).q_length} * work.group();
    for (std::int64_t row = 0; row < rows; row += static_cast<std::int64_t>(tile_rows)) {
      tiles.push_back({b, row});
    }
  }
  return tiles;
}

// Computes tiles one after the other, with memory that it keeps.
class TileTask {
 public:
  explicit TileTask(const AttentionWork& work)
      : work_(work),
        rows_(best_rows()),
        product_(work.type),
        columns_((static_cast<std::size_t>(work.dim_v) + AttentionRows::column_multiple - 1) /
                 AttentionRows::column_multiple * AttentionRows::column_multiple),
        // One cache line more than needed: rows whose distance is a power of two would share cache
        // sets.
        stride_(columns_ + AttentionRows::column_multiple),
        values_(block_keys * stride_),
        sums_(tile_rows * stride_) {}

  void operator()(const Tile& tile, std::int32_t head) {
    begin(tile, head);
    const std::int32_t first = query(0), last = query(count_ - 1) + 1;
    const AttentionBlocks blocks =
        attention_blocks(first, last, sequence_.q_length, sequence_.k_length, work_.reach,
                         static_cast<std::int32_t>(block_keys));
    for (std::int32_t block = blocks.begin; block < blocks.end; ++block) add(block);
    for (std::size_t r = 0; r < count_; ++r) store(r);
  }

 private:
  std::int32_t query(std::size_t row) const {
    return static_cast<std::int32_t>((first_ + static_cast<std::int64_t>(row)) / work_.group());
  }
  std::int32_t head(std::size_t row) const {
    return head_ * work_.group() +
           static_cast<std::int32_t>((first_ + static_cast<std::int64_t>(row)) % work_.group());
  }

  void begin(const Tile& tile, std::int32_t head_of_k) {
    number_ = tile.sequence;
    sequence_ = work_.sequences(tile.sequence);
    head_ = head_of_k;
    first_ = tile.first;
    const std::int64_t all = std::int64_t{sequence_.q_length} * work_.group();
    count_ = std::min(tile_rows, static_cast<std::size_t>(all - first_));
    std::array<const std::byte*, tile_rows> pointers;
    for (std::size_t r = 0; r < count_; ++r) {
      pointers[r] = element_at(
          work_.q, work_.q_strides.at(number_, sequence_.q_begin + query(r), head(r)), work_.type);
    }
    product_.set_rows({pointers.data(), count_}, static_cast<std::size_t>(work_.dim));
    std::ranges::fill(sums_, 0.F);
    std::ranges::fill(state_, AttentionRow{-INFINITY, 0});
  }

  // Adds the keys and values of a block.
  void add(std::int32_t block) {
    const std::int32_t from = block * static_cast<std::int32_t>(block_keys);
    const std::size_t keys =
        std::min(block_keys, static_cast<std::size_t>(sequence_.k_length - from));
    std::array<const std::byte*, block_keys> pointers;
    for (std::size_t key = 0; key < keys; ++key) {
      const AttentionPlace at =
          work_.pages(number_, sequence_.k_begin + from + static_cast<std::int64_t>(key));
      pointers[key] = row_at(work_.k, work_.k_strides, at);
      widen_row(row_at(work_.v, work_.v_strides, at), work_.type, &values_[key * stride_],
                static_cast<std::size_t>(work_.dim_v));
    }
    product_.multiply({.first = {pointers.data(), keys}});
    const AttentionScores scores{work_.scale, work_.softcap};
    for (std::size_t r = 0; r < count_; ++r) {
      const AttentionKeys own =
          attention_keys(query(r), sequence_.q_length, sequence_.k_length, work_.reach);
      const auto inside = [&](std::int32_t key) {
        return static_cast<std::size_t>(std::clamp(key - from, 0, static_cast<std::int32_t>(keys)));
      };
      const std::size_t begin = inside(own.begin), end = std::max(begin, inside(own.end));
      factors_[r] = rows_.softmax(product_.sums(r), begin, end, keys, scores, state_[r]);
    }
    rows_.accumulate(product_.sums(0), ProductBlock::most_columns, values_.data(), stride_,
                     factors_.data(), count_, keys, columns_, sums_.data(), stride_);
  }

  // A row of k or v, or a row of zeros.
  const std::byte* row_at(const void* array, const AttentionStrides& strides,
                          const AttentionPlace& at) const {
    static constexpr std::array<float, 256> zeros{};
    if (!at.there) return reinterpret_cast<const std::byte*>(zeros.data());
    return element_at(array, strides.at(at.batch, at.row, head_), work_.type);
  }

  void store(std::size_t r) {
    AttentionRow& row = state_[r];
    float* sums = &sums_[r * stride_];
    const auto columns = static_cast<std::size_t>(work_.dim_v);
    float lse = -INFINITY, factor = 0;
    if (row.sum != 0) {
      double sum = row.sum;
      if (work_.sinks != nullptr) sum += std::exp(double{sink(head(r))} - row.maximum);
      lse = static_cast<float>(row.maximum + std::log(sum));
      factor = static_cast<float>(1 / sum);
    }
    // Without a key, sums may be NaN: weights of 0 times infinite values.
    for (std::size_t c = 0; c < columns; ++c) sums[c] = factor == 0 ? 0 : sums[c] * factor;
    const std::int64_t i = sequence_.q_begin + query(r);
    narrow_row(
        sums, work_.type,
        static_cast<std::byte*>(work_.out) + work_.out_strides.at(number_, i, head(r)) *
                                                 static_cast<std::int64_t>(size_of(work_.type)),
        columns);
    if (work_.lse != nullptr) work_.lse[work_.lse_strides.at(number_, i, head(r))] = lse;
  }

  float sink(std::int32_t head) const {
    float value = 0;
    widen_row(element_at(work_.sinks, head, work_.sink_type), work_.sink_type, &value, 1);
    return value;
  }

  const AttentionWork& work_;
  const AttentionRows& rows_;
  ProductBlock product_;
  std::size_t columns_, stride_;
  std::vector<float> values_, sums_;
  std::array<AttentionRow, tile_rows> state_{};
  std::array<float, tile_rows> factors_{};

  // The tile.
  std::int32_t number_ = 0, head_ = 0;
  AttentionSequence sequence_{};
  std::int64_t first_ = 0;
  std::size_t count_ = 0;
};

void compute(const AttentionWork& work) {
  const std::vector<Tile> tiles = tiles_of(work);
  const auto heads = static_cast<std::size_t>(work.heads_k);
  parallel_ranges(tiles.size() * heads, 1, [&](std::size_t begin, std::size_t end) {
    TileTask task(work);
    // The last tiles first: causal ones have the most keys.
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t place = tiles.size() * heads - 1 - i;
      task(tiles[place % tiles.size()], static_cast<std::int32_t>(place / tiles.size()));
    }
  });
}

}  // namespace

void attention_cpu(const AttentionWork& work, const Stream& stream) {
  stream.call([work] { compute(work); });
}

void compute_attention(const AttentionWork& work) { compute(work); }

}  // namespace ps::detail
