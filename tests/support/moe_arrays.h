// Calls of moe() in memory: arrays that hold the numbers of a call, with NaN around them, in unused
// slots and in `out`.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "penstock/ops/moe.h"
#include "support/moe_reference.h"

namespace ps::test {

// How the numbers lie in memory.
struct MoeStorage {
  GateUpLayout layout = GateUpLayout::concatenated;
  std::vector<std::int32_t>
      slots{};                  // by expert; empty: expert e is in slot e, and moe() gets none
  std::int64_t slot_count = 0;  // 0: as many as experts
  std::int64_t padding = 0;     // elements between rows of x, out, weights and biases
  // Weights whose columns are contiguous instead of their rows.
  bool gate_up_by_column = false, down_by_column = false;
  bool shared_gate_up_by_column = false, shared_down_by_column = false;
};

class MoeArrays {
 public:
  explicit MoeArrays(const MoeNumbers& numbers, const MoeStorage& storage = {})
      : numbers_(numbers),
        storage_(storage),
        out_(rows(numbers.shape.tokens, numbers.shape.hidden)),
        x_(rows(numbers.shape.tokens, numbers.shape.hidden)),
        ids_(numbers.shape.id_type, {numbers.shape.tokens, numbers.shape.choices}),
        weights_(numbers.shape.weight_type, {numbers.shape.tokens, numbers.shape.choices}) {
    const MoeShape& shape = numbers.shape;
    const std::int64_t T = shape.tokens, K = shape.choices, d = shape.hidden, n = shape.width;
    if (storage_.slot_count == 0) storage_.slot_count = shape.experts;
    gate_up_ = matrices(2 * n, d, storage_.gate_up_by_column);
    down_ = matrices(d, n, storage_.down_by_column);
    if (shape.gate_up_bias) gate_up_bias_ = rows(storage_.slot_count, 2 * n);
    if (shape.down_bias) down_bias_ = rows(storage_.slot_count, d);
    if (!storage_.slots.empty()) slots_ = Strided(DType::i32, {shape.experts});
    for (std::int64_t t = 0; t < T; ++t) {
      for (std::int64_t i = 0; i < d; ++i) set(x_, {t, i}, numbers.x, t * d + i);
      for (std::int64_t k = 0; k < K; ++k) {
        const auto id = numbers.ids[static_cast<std::size_t>(t * K + k)];
        ids_.set_bits({t, k}, static_cast<std::uint64_t>(id));
        set(weights_, {t, k}, numbers.weights, t * K + k);
      }
    }
    for (std::int64_t expert = 0; expert < shape.experts; ++expert) put(expert, slot_of(expert));
    if (shape.shared_width > 0) put_shared();
  }

  // Makes this the expert's slot and stores its weights there, if the slot is one.
  void put(std::int64_t expert, std::int64_t slot) {
    const std::int64_t d = numbers_.shape.hidden, n = numbers_.shape.width;
    if (!storage_.slots.empty()) slots_.set_bits({expert}, static_cast<std::uint64_t>(slot));
    if (slot < 0 || slot >= storage_.slot_count) return;
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t i = 0; i < d; ++i) {
        const std::int64_t from = (expert * n + row) * d + i;
        set(gate_up_, {slot, gate_row(row), i}, numbers_.gate, from);
        set(gate_up_, {slot, up_row(row, n), i}, numbers_.up, from);
        set(down_, {slot, i, row}, numbers_.down, (expert * d + i) * n + row);
      }
      if (!numbers_.shape.gate_up_bias) continue;
      set(gate_up_bias_, {slot, gate_row(row)}, numbers_.gate_bias, expert * n + row);
      set(gate_up_bias_, {slot, up_row(row, n)}, numbers_.up_bias, expert * n + row);
    }
    for (std::int64_t i = 0; numbers_.shape.down_bias && i < d; ++i) {
      set(down_bias_, {slot, i}, numbers_.down_bias, expert * d + i);
    }
  }

  // Which experts have a slot now.
  std::vector<bool> present() const {
    std::vector<bool> all;
    for (std::int64_t expert = 0; expert < numbers_.shape.experts; ++expert) {
      const auto slot = storage_.slots.empty() ? static_cast<std::int32_t>(expert)
                                               : static_cast<std::int32_t>(slots_.bits({expert}));
      all.push_back(slot >= 0 && slot < storage_.slot_count);
    }
    return all;
  }

  // The call, without workspace and pool. `place` gives the view of an array where moe() is to find
  // it, for instance of a copy on a GPU.
  template <class Place>
  MoeOptions options(const Place& place) {
    const MoeShape& shape = numbers_.shape;
    MoeOptions call{.x = place(x_),
                    .gate_up = place(gate_up_),
                    .down = place(down_),
                    .ids = place(ids_),
                    .weights = place(weights_),
                    .out = place(out_),
                    .layout = storage_.layout,
                    .activation = shape.activation,
                    .alpha = shape.alpha,
                    .limit = shape.limit};
    if (!storage_.slots.empty()) call.slots = place(slots_);
    if (shape.gate_up_bias) call.gate_up_bias = place(gate_up_bias_);
    if (shape.down_bias) call.down_bias = place(down_bias_);
    if (shape.shared_width > 0) {
      call.shared_gate_up = place(shared_gate_up_);
      call.shared_down = place(shared_down_);
      if (shape.shared_weighted) call.shared_weights = place(shared_weights_);
    }
    return call;
  }
  MoeOptions options() {
    return options([](Strided& array) { return array.view(); });
  }

  const Strided& out() const { return out_; }

 private:
  std::int64_t slot_of(std::int64_t expert) const {
    return storage_.slots.empty() ? expert : storage_.slots[static_cast<std::size_t>(expert)];
  }
  Strided rows(std::int64_t count, std::int64_t columns) const {
    return {numbers_.shape.type, {count, columns}, {columns + storage_.padding, 1}};
  }
  // The rows of gate_up that hold row `row` of gate and of up, of an expert of some width.
  std::int64_t gate_row(std::int64_t row) const {
    return storage_.layout == GateUpLayout::interleaved ? 2 * row : row;
  }
  std::int64_t up_row(std::int64_t row, std::int64_t width) const {
    return storage_.layout == GateUpLayout::interleaved ? 2 * row + 1 : width + row;
  }
  Strided matrices(std::int64_t count, std::int64_t columns, bool by_column) const {
    const std::int64_t row = by_column ? 1 : columns + storage_.padding;
    const std::int64_t column = by_column ? count + storage_.padding : 1;
    const std::int64_t slot = by_column ? columns * column : count * row;
    return {numbers_.shape.type,
            {storage_.slot_count, count, columns},
            {slot + storage_.padding, row, column}};
  }
  Strided matrix(std::int64_t count, std::int64_t columns, bool by_column) const {
    const std::int64_t padding = storage_.padding;
    if (by_column) return {numbers_.shape.type, {count, columns}, {1, count + padding}};
    return rows(count, columns);
  }
  void put_shared() {
    const MoeShape& shape = numbers_.shape;
    const std::int64_t m = shape.shared_width, d = shape.hidden;
    shared_gate_up_ = matrix(2 * m, d, storage_.shared_gate_up_by_column);
    shared_down_ = matrix(d, m, storage_.shared_down_by_column);
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t i = 0; i < d; ++i) {
        set(shared_gate_up_, {gate_row(row), i}, numbers_.shared_gate, row * d + i);
        set(shared_gate_up_, {up_row(row, m), i}, numbers_.shared_up, row * d + i);
        set(shared_down_, {i, row}, numbers_.shared_down, i * m + row);
      }
    }
    if (!shape.shared_weighted) return;
    shared_weights_ = Strided(shape.shared_weight_type, {shape.tokens});
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      set(shared_weights_, {t}, numbers_.shared_weights, t);
    }
  }
  static void set(Strided& array, const std::vector<std::int64_t>& at,
                  const std::vector<float>& from, std::int64_t i) {
    array.set_bits(at, encoded(from[static_cast<std::size_t>(i)], array.type()));
  }

  const MoeNumbers& numbers_;
  MoeStorage storage_;
  Strided out_, x_, gate_up_, down_, ids_, weights_, slots_, gate_up_bias_, down_bias_;
  Strided shared_gate_up_, shared_down_, shared_weights_;
};

// A call of random shape, types, layout, activation, biases and shared expert. Fits the rules of
// GPUs, too.
class RandomMoe {
 public:
  explicit RandomMoe(std::uint32_t seed, bool with_f32) : random_(seed), numbers_(make(with_f32)) {
    MoeStorage storage{
        .layout = below(2) == 0 ? GateUpLayout::concatenated : GateUpLayout::interleaved,
        .padding = below(3) == 0 ? 8 * (1 + below(3)) : 0,
        .gate_up_by_column = below(3) == 0,
        .down_by_column = below(3) == 0,
        .shared_gate_up_by_column = below(3) == 0,
        .shared_down_by_column = below(3) == 0};
    if (below(2) == 0) add_slots(storage);
    arrays_ = std::make_unique<MoeArrays>(numbers_, storage);
  }

  const MoeNumbers& numbers() const { return numbers_; }
  MoeArrays& arrays() { return *arrays_; }

  // "" if what moe() wrote is right and nothing else was written.
  std::string wrong() const {
    if (!arrays_->out().surroundings_untouched()) return "bytes around out were written";
    return test::wrong(arrays_->out(), expected(numbers_, arrays_->present()));
  }

 private:
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % n); }

  MoeNumbers make(bool with_f32) {
    const std::vector<DType> types{DType::bf16, DType::f16, DType::f32};
    MoeShape shape{.tokens = below(8) == 0 ? below(200) : below(24),
                   .hidden = 8 * (1 + below(below(6) == 0 ? 40 : 6)),
                   .width = 8 * (1 + below(below(6) == 0 ? 40 : 6)),
                   .experts = 1 + below(below(4) == 0 ? 30 : 6)};
    shape.choices = 1 + below(std::min<std::int64_t>(16, shape.experts));
    shape.type = types[static_cast<std::size_t>(below(with_f32 ? 3 : 2))];
    shape.weight_type = types[static_cast<std::size_t>(below(3))];
    shape.id_type = below(2) == 0 ? DType::i32 : DType::i64;
    shape.gate_up_bias = below(3) == 0;
    shape.down_bias = below(3) == 0;
    shape.activation = static_cast<MoeActivation>(below(4));
    shape.alpha = below(2) == 0 ? 1.702F : 0.5F;
    shape.limit = below(2) == 0 ? 7.F : 0.75F;  // most numbers are below the one, not the other
    if (below(3) == 0) shape.shared_width = 8 * (1 + below(below(6) == 0 ? 40 : 6));
    shape.shared_weighted = below(2) == 0;
    shape.shared_weight_type = types[static_cast<std::size_t>(below(3))];
    MoeNumbers numbers(shape, random_);
    spread(numbers);
    return numbers;
  }

  // Now and then some experts get all tokens, and some ids are none of an expert.
  void spread(MoeNumbers& numbers) {
    const std::int64_t used = below(3) == 0 ? 1 + below(2) : numbers.shape.experts;
    const std::int64_t without = below(3) == 0 ? 2 + below(4) : 1 << 30;
    for (std::int64_t& id : numbers.ids) {
      id %= used;
      if (below(without) != 0) continue;
      const std::int64_t wide = numbers.shape.id_type == DType::i64 ? std::int64_t{1} << 32 : 0;
      const std::vector<std::int64_t> odd{numbers.shape.experts, -1, 2147483647, -2147483648 - wide,
                                          wide == 0 ? -2 : wide};
      id = odd[static_cast<std::size_t>(below(static_cast<std::int64_t>(odd.size())))];
    }
  }

  // Any order, spare slots, and experts that have none.
  void add_slots(MoeStorage& storage) {
    const auto experts = static_cast<std::size_t>(numbers_.shape.experts);
    std::vector<std::int32_t> order(experts + static_cast<std::size_t>(below(4)));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    storage.slot_count = static_cast<std::int64_t>(order.size());
    storage.slots.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(experts));
    if (below(2) == 0) return;
    const std::vector<std::int32_t> nowhere{-1, static_cast<std::int32_t>(order.size()), 1 << 30,
                                            -2147483647 - 1};
    for (std::int32_t& slot : storage.slots) {
      if (below(3) == 0) slot = nowhere[static_cast<std::size_t>(below(4))];
    }
  }

  std::mt19937 random_;
  MoeNumbers numbers_;
  std::unique_ptr<MoeArrays> arrays_;
};

}  // namespace ps::test
