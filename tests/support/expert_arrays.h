// Stores with random weights, and the arrays of calls of StreamedExperts with what moe() gives.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "outofcore/expert_groups.h"
#include "penstock/base/error.h"
#include "penstock/host/pool.h"
#include "penstock/ops/moe.h"
#include "penstock/outofcore/experts.h"

namespace ps::test {

// Normal numbers of a type.
inline void randomise(const TensorView& view, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.25F);
  const MemoryView memory = {static_cast<std::byte*>(view.data()), view.bytes(), view.place()};
  for (std::int64_t i = 0; i < view.elements(); ++i) {
    const float value = normal(random);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    if (view.dtype() == DType::f32) {
      memory.as<std::uint32_t>()[i] = bits;
    } else if (view.dtype() == DType::bf16) {
      memory.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(bits >> 16);
    } else {  // f16 of the same order of magnitude
      memory.as<std::uint16_t>()[i] =
          static_cast<std::uint16_t>((bits >> 16 & 0x8000) | 0x2C00 | (bits >> 13 & 0x3FF));
    }
  }
}

inline void randomise(const ExpertStore& store, std::mt19937& random) {
  for (std::int64_t layer = 0; layer < store.shape().layers; ++layer) {
    for (std::int64_t e = 0; e < store.shape().experts; ++e) {
      randomise(store.gate_up(layer, e), random);
      randomise(store.down(layer, e), random);
      randomise(store.gate_up_bias(layer, e), random);
      randomise(store.down_bias(layer, e), random);
    }
  }
}

// Small, of any type and layout.
inline ExpertShape random_shape(std::uint32_t seed, std::mt19937& random) {
  return {.layers = 1 + static_cast<std::int64_t>(random() % 3),
          .experts = 1 + static_cast<std::int64_t>(random() % 12),
          .hidden = 8 + 8 * static_cast<std::int64_t>(random() % 5),
          .width = 8 + 8 * static_cast<std::int64_t>(random() % 3),
          .dtype = seed % 5 == 0   ? DType::f32
                   : seed % 5 == 1 ? DType::f16
                                   : DType::bf16,
          .layout = seed % 2 == 0 ? GateUpLayout::interleaved : GateUpLayout::concatenated,
          .transposed = seed % 3 == 0,
          .gate_up_bias = seed % 4 < 2,
          .down_bias = seed % 4 == 1};
}

// The arrays of a call but for the weights, and a copy of the weights as moe() takes them.
class Arrays {
 public:
  Arrays(const ExpertStore& store, std::int64_t layer, std::int64_t tokens, std::int64_t choices,
         std::int64_t shared_width, std::mt19937& random)
      : shape_(store.shape()) {
    const std::int64_t d = shape_.hidden, experts = shape_.experts;
    call_.x = made({tokens, d}, random);
    call_.out = made({tokens, d}, random);
    const TensorView ids = memory(DType::i64, {tokens, choices});
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<std::int64_t> order(static_cast<std::size_t>(experts));
      std::iota(order.begin(), order.end(), 0);
      for (std::int64_t k = 0; k < choices; ++k) {
        // Low numbers are more likely.
        const auto left = static_cast<std::uint64_t>(order.size());
        const auto at = static_cast<std::ptrdiff_t>(std::min(random() % left, random() % left));
        static_cast<std::int64_t*>(ids.data())[t * choices + k] =
            order[static_cast<std::size_t>(at)];
        order.erase(order.begin() + at);
      }
    }
    call_.ids = ids;
    call_.weights = memory(DType::f32, {tokens, choices});
    for (std::int64_t i = 0; i < tokens * choices; ++i) {
      static_cast<float*>(call_.weights.data())[i] = static_cast<float>(random() % 100) / 100;
    }
    if (shared_width > 0) {
      call_.shared_gate_up = made({2 * shared_width, d}, random);
      call_.shared_down = made({d, shared_width}, random);
    }
    call_.pool = &pool_;
    copy_weights(store, layer);
  }

  const MoeOptions& call() const { return call_; }
  void activate(MoeActivation activation) { call_.activation = activation; }

  // What moe() gives with all weights, contiguous.
  std::vector<std::uint8_t> wanted(const Stream& stream) {
    MoeOptions options = call_;
    options.gate_up = gate_up_;
    options.down = down_;
    options.gate_up_bias = gate_up_bias_;
    options.down_bias = down_bias_;
    options.layout = shape_.layout;
    moe(options, stream);
    stream.synchronize();
    return take_out();
  }
  // The bytes of out, which are poisoned.
  std::vector<std::uint8_t> take_out() const {
    auto* out = static_cast<std::uint8_t*>(call_.out.data());
    std::vector<std::uint8_t> bytes(out, out + call_.out.bytes());
    std::fill_n(out, bytes.size(), std::uint8_t{0xFF});
    return bytes;
  }

 private:
  TensorView memory(DType type, std::initializer_list<std::int64_t> shape) {
    std::size_t bytes = size_of(type);
    for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
    memory_.emplace_back(bytes + 64);
    return TensorView(memory_.back().data(), type, shape);
  }
  TensorView made(std::initializer_list<std::int64_t> shape, std::mt19937& random) {
    const TensorView view = memory(shape_.dtype, shape);
    randomise(view, random);
    return view;
  }

  void copy_weights(const ExpertStore& store, std::int64_t layer) {
    const std::int64_t E = shape_.experts, d = shape_.hidden, n = shape_.width;
    gate_up_ = memory(shape_.dtype, {E, 2 * n, d});
    down_ = memory(shape_.dtype, {E, d, n});
    if (shape_.gate_up_bias) gate_up_bias_ = memory(shape_.dtype, {E, 2 * n});
    if (shape_.down_bias) down_bias_ = memory(shape_.dtype, {E, d});
    const std::size_t element = size_of(shape_.dtype);
    const auto copy = [&](const TensorView& from, const TensorView& to, std::int64_t expert) {
      const std::int64_t rows = from.rank() == 2 ? from.extent(0) : 1;
      const std::int64_t columns = from.extent(from.rank() - 1);
      auto* target = static_cast<std::byte*>(to.data()) +
                     static_cast<std::size_t>(expert * rows * columns) * element;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const std::int64_t at =
              (from.rank() == 2 ? r * from.strides()[0] : 0) + c * from.strides()[from.rank() - 1];
          std::memcpy(target + static_cast<std::size_t>(r * columns + c) * element,
                      static_cast<std::byte*>(from.data()) + static_cast<std::size_t>(at) * element,
                      element);
        }
      }
    };
    for (std::int64_t e = 0; e < E; ++e) {
      copy(store.gate_up(layer, e), gate_up_, e);
      copy(store.down(layer, e), down_, e);
      if (shape_.gate_up_bias) copy(store.gate_up_bias(layer, e), gate_up_bias_, e);
      if (shape_.down_bias) copy(store.down_bias(layer, e), down_bias_, e);
    }
  }

  const ExpertShape shape_;
  Pool pool_{Device::cpu()};
  std::vector<std::vector<std::byte>> memory_;
  MoeOptions call_;
  TensorView gate_up_, down_, gate_up_bias_, down_bias_;
};

// Of random call number `call`: few tokens or many, and a shared expert or none.
inline Arrays random_arrays(const ExpertStore& store, int call, std::mt19937& random) {
  const std::int64_t layer = call % store.shape().layers, experts = store.shape().experts;
  const std::int64_t tokens = random() % 3 == 0 ? static_cast<std::int64_t>(random() % 300)
                                                : static_cast<std::int64_t>(random() % 3);
  const std::int64_t choices =
      1 + static_cast<std::int64_t>(random() % std::min<std::uint64_t>(4, experts));
  return {store, layer, tokens, choices, call % 2 == 0 ? 16 : 0, random};
}

inline std::size_t bytes_for(const ExpertShape& shape, std::size_t slots) {
  const std::size_t least = detail::least_expert_slots(static_cast<std::size_t>(shape.experts));
  return StreamedExperts::least_bytes(shape) + (slots - least) * ExpertStore::block_bytes(shape);
}

// Calls of one thread on a stream of its own.
inline void expect_the_bits_of_moe(StreamedExperts& experts, const ExpertStore& store, int calls,
                                   std::uint32_t seed) {
  std::mt19937 random(seed);
  const Stream stream(Device::cpu());
  for (int call = 0; call < calls; ++call) {
    const std::int64_t layer = call % store.shape().layers;
    Arrays arrays(store, layer, 1 + call % 40, 2, 0, random);
    const auto wanted = arrays.wanted(stream);
    experts.forward(layer, arrays.call(), stream);
    stream.synchronize();
    EXPECT_EQ(arrays.take_out(), wanted);
  }
}

// The name of the argument that a function complains about.
inline std::string named(const std::function<void()>& function) {
  try {
    function();
  } catch (const InvalidArgument& error) {
    return error.argument();
  }
  return "";
}

}  // namespace ps::test
