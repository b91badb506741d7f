// The loads of the portable products: an endless sequence of steps, item after item, each of which
// copies a tile of A and a tile of B with cp.async. Loads are ahead of products also where an item
// ends.
#pragma once

#include <cstdint>

#include "ops/moe/portable_queue.cuh"
#include "ops/moe/portable_tiles.cuh"
#include "penstock/kit/cp_async.cuh"

namespace ps::detail::moe_portable {

// A thread's copies of A: 16 bytes of every 64th row.
template <class Config>
class LoadsA {
  using Element = typename Config::Element;
  using Tile = typename Config::TileA;

 public:
  __device__ explicit LoadsA(const Operands<Element>& operands)
      : operands_(operands), to_(Tile::offset(line_, chunk_ * 8)) {}

  // Loads which rows of x the item has, for begin().
  __device__ void look_at(const MoeItem& item) {
#pragma unroll
    for (unsigned i = 0; i < turns; ++i) {
      // Rows behind the last are not copied: their products are not stored.
      const unsigned row = item.first + min(line_ + lines * i, item.rows - 1);
      rows_[i] = Config::up ? operands_.source[row] : row;
    }
  }

  __device__ void begin(const MoeItem& item) {
    count_ = item.rows;
#pragma unroll
    for (unsigned i = 0; i < turns; ++i) {
      const unsigned row = Config::up ? operands_.choices.divide(rows_[i]) : rows_[i];
      from_[i] =
          operands_.a + static_cast<std::int64_t>(row) * operands_.a_row + chunk_ * Config::chunk;
    }
  }

  // Copies the next step, in which there are still `k` elements of K. Behind them there are zeros,
  // since 0 times what lies there could be NaN.
  __device__ void copy(unsigned char* tile, unsigned k) {
    const unsigned valid = chunk_ * Config::chunk < k ? chunk_bytes : 0;
#pragma unroll
    for (unsigned i = 0; i < turns; ++i) {
      if (line_ + lines * i < count_) {
        kit::cp_async<chunk_bytes>(tile + to_ + Tile::row_offset(lines * i), from_[i], valid);
      }
      from_[i] += Config::tile_k;
    }
  }

 private:
  static constexpr unsigned chunks = row_bytes / chunk_bytes, lines = threads / chunks;
  static constexpr unsigned turns = tile_rows / lines;

  const Operands<Element>& operands_;
  const unsigned line_ = threadIdx.x / chunks, chunk_ = threadIdx.x % chunks;
  const unsigned to_;
  unsigned rows_[turns] = {};
  const Element* from_[turns] = {};
  unsigned count_ = 0;
};

// A thread's copies of weights whose rows are contiguous: 16 bytes of one row for each column of
// warps, put where wide_column() expects them.
template <class Config>
class LoadsByRow {
  using Element = typename Config::Element;
  using Tile = typename Config::TileB;

 public:
  __device__ explicit LoadsByRow(const Operands<Element>& operands)
      : operands_(operands), to_(Tile::offset(line_, chunk_ * 8)) {}

  __device__ void begin(const MoeItem& item) {
    const Column place = wide_column<Config>(line_ / 8, line_ % 8);
    const unsigned column = item.column * Config::out_columns + place.column;
    const unsigned row = Config::up ? gate_up_row(operands_, place.half, column) : column;
    from_ = operands_.b + item.slot * operands_.b_slot +
            static_cast<std::int64_t>(row) * operands_.b_row + chunk_ * Config::chunk;
    // Columns behind the last are not copied: their products are not stored.
    turns_ = column < operands_.columns
                 ? (operands_.columns - column - 1) / Config::warp_out_columns + 1
                 : 0;
  }

  __device__ void copy(unsigned char* tile, unsigned k) {
    const unsigned valid = chunk_ * Config::chunk < k ? chunk_bytes : 0;
    const std::int64_t apart =
        (Config::up && !operands_.interleaved ? warp_columns / 2 : warp_columns) * operands_.b_row;
#pragma unroll
    for (unsigned i = 0; i < tile_columns / warp_columns; ++i) {
      if (i < turns_) {
        kit::cp_async<chunk_bytes>(tile + to_ + Tile::row_offset(warp_columns * i),
                                   from_ + i * apart, valid);
      }
    }
    from_ += Config::tile_k;
  }

 private:
  static constexpr unsigned chunks = row_bytes / chunk_bytes;
  static_assert(threads / chunks == warp_columns, "a turn loads the columns of one warp");

  const Operands<Element>& operands_;
  const unsigned line_ = threadIdx.x / chunks, chunk_ = threadIdx.x % chunks;
  const unsigned to_;
  const Element* from_ = nullptr;
  unsigned turns_ = 0;
};

// The same for weights whose columns are contiguous: a thread copies 16 bytes of adjacent columns
// of the product, for some k. In the up-projection chunks of gate and of up lie in the tile in
// turn, in f32 eight of gate and eight of up.
template <class Config>
class LoadsByColumn {
  using Element = typename Config::Element;
  using Tile = typename Config::TileB;

 public:
  __device__ explicit LoadsByColumn(const Operands<Element>& operands)
      : operands_(operands), to_(Tile::offset(chunk_ * 8, line_)) {}

  __device__ void begin(const MoeItem& item) {
    const unsigned inside = chunk_ % warp_chunks, warp = chunk_ / warp_chunks;
    unsigned row = item.column * tile_columns + chunk_ * Config::chunk;
    valid_ = row < operands_.columns;
    if constexpr (Config::up) {
      const unsigned half = Config::bytes == 2 ? inside % 2 : inside / 8;
      const unsigned number = Config::bytes == 2 ? inside / 2 : inside % 8;
      const unsigned column = item.column * Config::out_columns + warp * Config::warp_out_columns +
                              number * Config::chunk;
      row = operands_.interleaved ? item.column * tile_columns + warp * warp_columns +
                                        (2 * number + half) * Config::chunk
                                  : half * operands_.columns + column;
      valid_ = operands_.interleaved ? row < 2 * operands_.columns : column < operands_.columns;
    }
    from_ = operands_.b + item.slot * operands_.b_slot + row + line_ * operands_.b_column;
  }

  __device__ void copy(unsigned char* tile, unsigned k) {
#pragma unroll
    for (unsigned i = 0; i < Config::tile_k / lines; ++i) {
      // The swizzle XORs a chunk with its line.
      const unsigned to = (to_ ^ lines * i % 8 * chunk_bytes) + lines * i * Tile::span_bytes;
      if (valid_) {
        kit::cp_async<chunk_bytes>(tile + to, from_ + lines * i * operands_.b_column,
                                   line_ + lines * i < k ? chunk_bytes : 0);
      }
    }
    from_ += Config::tile_k * operands_.b_column;
  }

 private:
  static constexpr unsigned chunks = tile_columns / Config::chunk;  // of a line
  static constexpr unsigned warp_chunks = warp_columns / Config::chunk;
  static constexpr unsigned lines = threads / chunks;  // that the block loads at a time

  const Operands<Element>& operands_;
  const unsigned line_ = threadIdx.x / chunks, chunk_ = threadIdx.x % chunks;
  const unsigned to_;
  const Element* from_ = nullptr;
  bool valid_ = false;
};

template <class Config>
class Loads {
 public:
  __device__ Loads(Shared<Config>& shared, Queue& queue,
                   const Operands<typename Config::Element>& operands, unsigned steps)
      : shared_(shared),
        queue_(queue),
        a_(operands),
        b_(operands),
        steps_(steps),
        last_k_(operands.k - (steps - 1) * Config::tile_k) {
    __syncthreads();
    receive();
    begin();
  }

  // Copies the next step into slot `to`. Closes a group of copies in any case, so that the number
  // of groups tells which step has arrived.
  __device__ void next(unsigned to) {
    if (left_ > 0) {
      const unsigned k = left_ > 1 ? Config::tile_k : last_k_;
      a_.copy(shared_.a[to], k);
      b_.copy(shared_.b[to], k);
      if (left_ <= number_ahead) look_ahead();
      if (--left_ == 0) begin();
    }
    kit::cp_async_commit();
  }

 private:
  // Steps before the end of an item at which its successor's number is taken, its word is loaded,
  // passed on and received, and its rows are looked up. Items of fewer steps do it all at once.
  static constexpr unsigned number_ahead = 8, word_ahead = 6, publish_ahead = 4, receive_ahead = 2;

  __device__ void look_ahead() {
    if (left_ == number_ahead) queue_.take_number();
    if (left_ == word_ahead) queue_.fetch();
    if (left_ == publish_ahead) queue_.publish();
    if (left_ == receive_ahead) receive();
  }

  __device__ void receive() {
    item_ = queue_.latest();
    if (item_.rows > 0) a_.look_at(item_);
  }

  // Begins with the item that was received.
  __device__ void begin() {
    if (item_.rows == 0) return;
    a_.begin(item_);
    b_.begin(item_);
    left_ = steps_;
    if (steps_ >= number_ahead) return;
    queue_.take_number();
    queue_.fetch();
    queue_.publish();
    __syncthreads();
    receive();
  }

  Shared<Config>& shared_;
  Queue& queue_;
  LoadsA<Config> a_;
  std::conditional_t<Config::major == kit::Major::k, LoadsByRow<Config>, LoadsByColumn<Config>> b_;
  const unsigned steps_, last_k_;  // of an item, and of the last one's K
  unsigned left_ = 0;              // of the item that is being loaded
  MoeItem item_{};                 // the one after it, once it is received
};

}  // namespace ps::detail::moe_portable
