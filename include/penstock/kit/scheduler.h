// Assigns the tiles of an output to blocks.
//
//   GroupedOrder order(rows, columns);                    // on the host; an argument of the kernel
//
//   PersistentTiles tiles(order, blockIdx.x, gridDim.x);  // in the kernel, in every role
//   for (Tile tile; tiles.take(tile);) { ... }
//
// An order numbers the tiles. A scheduler gives the numbers to blocks:
//
//   StaticTiles       one tile per block; launch order.blocks() blocks
//   PersistentTiles   any number of blocks; block b takes tiles b, b + blocks, ...
//   DynamicTiles      any number of blocks; each takes the next tile when it is free
//
// A cluster of c blocks takes c tiles of one column at a time, so that multicast copies can load
// the column's operand for all of them. If c does not divide the rows, some blocks get tiles below
// the last row: they must run along with their cluster and store nothing.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/base/error.h"
#include "penstock/kit/config.h"
#include "penstock/kit/ring.h"

namespace ps::kit {

// Fast division of numbers below 2^31 by a fixed divisor: one multiplication and one shift.
class Divisor {
 public:
  PENSTOCK_HD explicit Divisor(unsigned divisor = 1) : divisor_(divisor) {
    while ((std::uint64_t{1} << (shift_ - 31)) < divisor) ++shift_;
    // 2^shift / divisor, rounded up: fits, and is off by too little to reach the next quotient.
    multiplier_ = static_cast<unsigned>(((std::uint64_t{1} << shift_) + divisor - 1) / divisor);
  }

  PENSTOCK_HD unsigned divide(unsigned number) const {
    return static_cast<unsigned>((std::uint64_t{number} * multiplier_) >> shift_);
  }
  PENSTOCK_HD unsigned value() const { return divisor_; }

 private:
  unsigned divisor_;
  unsigned multiplier_ = 0;
  unsigned shift_ = 31;
};

struct Tile {
  unsigned row = 0;
  unsigned column = 0;
};

// Numbers the tiles in panels of `group` rows, column by column inside a panel, so that tiles with
// near numbers share rows and columns and their operands stay in the L2 cache. The last panel may
// have fewer rows.
class GroupedOrder {
 public:
  // `rows` and `columns` count tiles. Throws InvalidArgument for 2^31 tiles or more, a cluster that
  // is not 1 to 16 blocks, and a group that is not a multiple of the cluster.
  GroupedOrder(std::uint64_t rows, std::uint64_t columns, unsigned group = 8,
               unsigned cluster = 1) {
    constexpr std::uint64_t limit = std::uint64_t{1} << 31;
    check(cluster >= 1 && cluster <= 16, "cluster", "1 to 16 blocks", cluster);
    check(group >= 1 && group % cluster == 0, "group", "a multiple of cluster", group);
    check(rows < limit, "rows", "fewer than 2^31 tiles", rows);
    check(columns < limit, "columns", "fewer than 2^31 tiles", columns);
    const std::uint64_t high = (rows + cluster - 1) / cluster;  // in clusters, as all that follows
    check(high * cluster * columns < limit, "rows * columns", "fewer than 2^31 tiles",
          rows * columns);

    rows_ = static_cast<unsigned>(rows);
    columns_ = static_cast<unsigned>(columns);
    count_ = static_cast<unsigned>(high * columns);
    cluster_ = Divisor(cluster);
    if (count_ == 0) return;
    const auto all = static_cast<unsigned>(high);
    const unsigned height = all < group / cluster ? all : group / cluster;
    height_ = Divisor(height);
    panel_ = Divisor(height * columns_);
    last_panel_ = (all - 1) / height;
    last_height_ = Divisor(all - last_panel_ * height);
  }

  PENSTOCK_HD unsigned rows() const { return rows_; }
  PENSTOCK_HD unsigned columns() const { return columns_; }
  PENSTOCK_HD unsigned blocks() const { return count_ * cluster_.value(); }
  PENSTOCK_HD unsigned count() const { return count_; }  // tile numbers, one per cluster of tiles
  PENSTOCK_HD const Divisor& cluster() const { return cluster_; }

  // The tile of a number below count(), for the block of this rank in its cluster.
  PENSTOCK_HD Tile tile(unsigned number, unsigned rank = 0) const {
    const unsigned panel = panel_.divide(number);
    const unsigned inside = number - panel * panel_.value();
    const Divisor height = panel == last_panel_ ? last_height_ : height_;
    const unsigned column = height.divide(inside);
    const unsigned row = panel * height_.value() + inside - column * height.value();
    return {row * cluster_.value() + rank, column};
  }

 private:
  static void check(bool holds, const char* argument, const char* expected, std::uint64_t given) {
    if (!holds) ps::detail::throw_invalid(argument, expected, std::to_string(given));
  }

  unsigned rows_ = 0, columns_ = 0, count_ = 0, last_panel_ = 0;
  Divisor cluster_, panel_, height_, last_height_;
};

template <class Order>
class PersistentTiles {
 public:
  // `block` is blockIdx.x; `blocks` is gridDim.x, a multiple of the cluster.
  PENSTOCK_HD PersistentTiles(const Order& order, unsigned block, unsigned blocks)
      : order_(order),
        next_(order.cluster().divide(block)),
        stride_(order.cluster().divide(blocks)),
        rank_(block - next_ * order.cluster().value()) {}

  // The next tile of this block; false if there is none.
  template <class Tile>
  PENSTOCK_HD bool take(Tile& tile) {
    if (next_ >= order_.count()) return false;
    tile = order_.tile(next_, rank_);
    next_ += stride_;
    return true;
  }

 private:
  Order order_;
  unsigned next_, stride_, rank_;
};

template <class Order>
class StaticTiles {
 public:
  PENSTOCK_HD StaticTiles(const Order& order, unsigned block)
      : order_(order),
        next_(order.cluster().divide(block)),
        rank_(block - next_ * order.cluster().value()) {}

  template <class Tile>
  PENSTOCK_HD bool take(Tile& tile) {
    if (next_ >= order_.count()) return false;
    tile = order_.tile(next_, rank_);
    next_ = order_.count();
    return true;
  }

 private:
  Order order_;
  unsigned next_, rank_;
};

// Counter::take() returns 0, 1, 2, ... across all blocks, for instance by an atomic in global
// memory. If several roles of a block need the same tiles, use a Leader in one of them and
// Followers in the others. All blocks of a cluster must get the same numbers.
template <class Order, class Counter>
class DynamicTiles {
 public:
  PENSTOCK_HD DynamicTiles(const Order& order, unsigned block, const Counter& counter)
      : order_(order),
        counter_(counter),
        rank_(block - order.cluster().divide(block) * order.cluster().value()) {}

  // Do not call again after it has returned false.
  template <class Tile>
  PENSTOCK_HD bool take(Tile& tile) {
    const unsigned number = counter_.take();
    if (number >= order_.count()) return false;
    tile = order_.tile(number, rank_);
    return true;
  }

 private:
  Order order_;
  Counter counter_;
  unsigned rank_;
};

// Passes tile numbers from one role to the others. Lives in shared memory. Initialise its ring with
// one commit, and with one release per thread that has a Follower.
template <class Barrier, unsigned depth>
struct Handover {
  Ring<Barrier, depth> ring;
  unsigned numbers[depth];
};

// A counter for one thread of the block, which passes every number it takes to the Followers.
template <class Counter, class Barrier, unsigned depth>
class Leader {
 public:
  PENSTOCK_HD Leader(const Counter& counter, Handover<Barrier, depth>& handover)
      : counter_(counter), numbers_(handover.numbers), producer_(handover.ring) {}

  PENSTOCK_HD unsigned take() {
    const unsigned number = counter_.take();
    numbers_[producer_.acquire()] = number;
    producer_.commit();
    return number;
  }

 private:
  Counter counter_;
  unsigned* numbers_;
  Producer<Barrier, depth> producer_;
};

// A counter for the other threads, which returns the Leader's numbers.
template <class Barrier, unsigned depth>
class Follower {
 public:
  PENSTOCK_HD explicit Follower(Handover<Barrier, depth>& handover)
      : numbers_(handover.numbers), consumer_(handover.ring) {}

  PENSTOCK_HD unsigned take() {
    const unsigned number = numbers_[consumer_.wait()];
    consumer_.release();
    return number;
  }

 private:
  const unsigned* numbers_;
  Consumer<Barrier, depth> consumer_;
};

}  // namespace ps::kit
