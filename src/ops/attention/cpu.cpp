// The CPU's attention(): softmax over one block of keys after the other. A task is a tile of rows
// of one head of k; the rows are queries of all heads that use this head of k. If a sequence has
// only one tile, as in decoding, its keys are cut into pieces, each of which is a task, and then
// combined in order. Where they are cut depends on the sequence alone, so that results have the
// same bits however the tasks are divided among threads.
#include "ops/attention/cpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
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
  static const AttentionRows* const best = [] {
    if (product_kernel(InstructionSet::avx512, DType::f32) != nullptr)
      return attention_rows_avx512();
    if (product_kernel(InstructionSet::avx2, DType::f32) != nullptr) return attention_rows_avx2();
    return attention_rows_baseline();
  }();
  return *best;
}

const std::byte* element_at(const void* array, std::int64_t index, DType type) {
  return static_cast<const std::byte*>(array) + index * static_cast<std::int64_t>(size_of(type));
}

// Rows of a sequence that one task computes.
struct Tile {
  std::int32_t sequence = 0;
  std::int64_t first = 0;  // row i * group + the head in its group
  std::size_t rows = 0;
  std::int32_t begin = 0, end = 0;  // blocks of keys
  std::int32_t piece_blocks = 0;    // blocks of a piece; 0: the tile is not cut
  std::size_t partial = 0;          // of a cut tile: its first row among the partial results

  std::int32_t pieces() const {
    return piece_blocks == 0 ? 1 : (end - begin + piece_blocks - 1) / piece_blocks;
  }
};

// The blocks of a piece of a tile of `rows` rows: so many that partial results are small beside the
// keys and values that are read.
std::int32_t piece_blocks_for(std::size_t rows) {
  constexpr std::size_t least = 8, rows_per_block = 4;
  return static_cast<std::int32_t>(std::max(least, rows / rows_per_block));
}

// The tiles of one head of k, their pieces, and the rows of the pieces of cut tiles.
struct Tiles {
  struct Piece {
    std::size_t tile;
    std::int32_t number;
  };
  std::vector<Tile> all;
  std::vector<Piece> pieces;
  std::vector<std::size_t> cut;
  std::size_t partials = 0;

  explicit Tiles(const AttentionWork& work) {
    for (std::int32_t b = 0; b < work.sequences.count; ++b) {
      const AttentionSequence sequence = work.sequences(b);
      const std::int64_t rows = std::int64_t{sequence.q_length} * work.group();
      for (std::int64_t row = 0; row < rows; row += static_cast<std::int64_t>(tile_rows)) {
        add(work, sequence, {.sequence = b, .first = row}, rows);
      }
    }
  }

 private:
  void add(const AttentionWork& work, const AttentionSequence& sequence, Tile tile,
           std::int64_t rows) {
    tile.rows = std::min(tile_rows, static_cast<std::size_t>(rows - tile.first));
    const std::int64_t last = tile.first + static_cast<std::int64_t>(tile.rows) - 1;
    const AttentionBlocks blocks =
        attention_blocks(static_cast<std::int32_t>(tile.first / work.group()),
                         static_cast<std::int32_t>(last / work.group()) + 1, sequence.q_length,
                         sequence.k_length, work.reach, static_cast<std::int32_t>(block_keys));
    tile.begin = blocks.begin;
    tile.end = blocks.end;
    const bool is_only = std::cmp_equal(rows, tile.rows);
    if (is_only && blocks.count() > piece_blocks_for(tile.rows)) {
      tile.piece_blocks = piece_blocks_for(tile.rows);
      tile.partial = partials;
      partials += tile.rows * static_cast<std::size_t>(tile.pieces());
      cut.push_back(all.size());
    }
    for (std::int32_t number = 0; number < tile.pieces(); ++number) {
      pieces.push_back({all.size(), number});
    }
    all.push_back(tile);
  }
};

// What tasks compute of cut tiles, row by row.
struct Partials {
  Partials(std::size_t rows, std::size_t row_columns)
      : columns(row_columns),
        states(rows),
        sums(std::make_unique_for_overwrite<float[]>(rows * row_columns)) {}

  float* sums_of(std::size_t row) const { return sums.get() + row * columns; }

  std::size_t columns;
  std::vector<AttentionRow> states;
  std::unique_ptr<float[]> sums;
};

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

  void whole(const Tile& tile, std::int32_t head) {
    begin(tile, head);
    set_queries();
    for (std::int32_t block = tile.begin; block < tile.end; ++block) add(block);
    for (std::size_t r = 0; r < count_; ++r) store(r);
  }

  // Row `row` of the partial results is the first one of this head.
  void piece(const Tile& tile, std::int32_t number, std::int32_t head, Partials& partials,
             std::size_t row) {
    begin(tile, head);
    set_queries();
    const std::int32_t first = tile.begin + number * tile.piece_blocks;
    const std::int32_t behind = std::min(tile.end, first + tile.piece_blocks);
    for (std::int32_t block = first; block < behind; ++block) add(block);
    row += tile.partial + static_cast<std::size_t>(number) * count_;
    for (std::size_t r = 0; r < count_; ++r) {
      partials.states[row + r] = state_[r];
      std::copy_n(&sums_[r * stride_], partials.columns, partials.sums_of(row + r));
    }
  }

  // Combines the pieces of a tile in order, and stores the results.
  void combine(const Tile& tile, std::int32_t head, Partials& partials, std::size_t row) {
    begin(tile, head);
    row += tile.partial;
    for (std::size_t r = 0; r < count_; ++r) {
      for (std::int32_t number = 0; number < tile.pieces(); ++number) {
        const std::size_t from = row + static_cast<std::size_t>(number) * count_ + r;
        state_[r].maximum = std::max(state_[r].maximum, partials.states[from].maximum);
      }
      const float most = state_[r].maximum == -INFINITY ? 0 : state_[r].maximum;
      for (std::int32_t number = 0; number < tile.pieces(); ++number) {
        const std::size_t from = row + static_cast<std::size_t>(number) * count_ + r;
        const AttentionRow& part = partials.states[from];
        if (part.sum == 0) continue;  // without a key, sums may be NaN
        const float factor = std::exp(part.maximum - most);
        state_[r].sum += part.sum * factor;
        const float* const sums = partials.sums_of(from);
        for (std::size_t c = 0; c < partials.columns; ++c) {
          sums_[r * stride_ + c] += sums[c] * factor;
        }
      }
      store(r);
    }
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
    count_ = tile.rows;
    std::fill_n(sums_.begin(), count_ * stride_, 0.F);
    std::fill_n(state_.begin(), count_, AttentionRow{-INFINITY, 0});
  }

  void set_queries() {
    std::array<const std::byte*, tile_rows> pointers;
    for (std::size_t r = 0; r < count_; ++r) {
      pointers[r] = element_at(
          work_.q, work_.q_strides.at(number_, sequence_.q_begin + query(r), head(r)), work_.type);
    }
    product_.set_rows({pointers.data(), count_}, static_cast<std::size_t>(work_.dim));
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
      // The sink may be far above or below the scores.
      const double extra = work_.sinks != nullptr ? sink(head(r)) : -INFINITY;
      const double most = std::max<double>(row.maximum, extra);
      const double shrink = std::exp(row.maximum - most);
      const double sum = row.sum * shrink + std::exp(extra - most);
      lse = static_cast<float>(most + std::log(sum));
      factor = static_cast<float>(shrink / sum);
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

}  // namespace

void attention_cpu(const AttentionWork& work, const Stream& stream) {
  stream.call([work] { compute_attention(work); });
}

void compute_attention(const AttentionWork& work, const RunRanges& run_ranges) {
  const Tiles tiles(work);
  const auto heads = static_cast<std::size_t>(work.heads_k);
  Partials partials(tiles.partials * heads, static_cast<std::size_t>(work.dim_v));
  const std::size_t count = tiles.pieces.size();
  run_ranges(count * heads, 1, [&](std::size_t begin, std::size_t end) {
    TileTask task(work);
    // The last tiles first: causal ones have the most keys.
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t place = count * heads - 1 - i, head = place / count;
      const Tiles::Piece& piece = tiles.pieces[place % count];
      const Tile& tile = tiles.all[piece.tile];
      if (tile.piece_blocks == 0) {
        task.whole(tile, static_cast<std::int32_t>(head));
      } else {
        task.piece(tile, piece.number, static_cast<std::int32_t>(head), partials,
                   head * tiles.partials);
      }
    }
  });
  if (tiles.cut.empty()) return;
  run_ranges(tiles.cut.size() * heads, 1, [&](std::size_t begin, std::size_t end) {
    TileTask task(work);
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t head = i / tiles.cut.size();
      task.combine(tiles.all[tiles.cut[i % tiles.cut.size()]], static_cast<std::int32_t>(head),
                   partials, head * tiles.partials);
    }
  });
}

}  // namespace ps::detail
