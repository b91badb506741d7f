// Passes through expert layers with random weights, and what they should give.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "penstock/host/buffer.h"
#include "penstock/host/pool.h"
#include "penstock/ops/moe.h"
#include "penstock/outofcore/experts.h"

namespace bench {

using Ids = std::vector<std::int32_t>;

// The same numbers in every run.
inline std::mt19937_64 generator(std::uint64_t seed) { return std::mt19937_64(seed); }

inline constexpr std::int64_t choices = 8;  // per token

// Normally distributed bf16 weights of about the size that real ones have.
inline void fill_experts(const ps::ExpertStore& store) {
  std::mt19937_64 random = generator(1);
  std::normal_distribution<float> normal(0, 0.02F);
  // One expert of numbers, at another offset in every block: drawing all would take minutes.
  std::vector<std::uint16_t> drawn(store.block_bytes() / 2 + 65536);
  for (std::uint16_t& each : drawn) {
    const float value = normal(random);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    each = static_cast<std::uint16_t>(bits >> 16);
  }
  for (std::int64_t layer = 0; layer < store.shape().layers; ++layer) {
    for (std::int64_t e = 0; e < store.shape().experts; ++e) {
      const ps::MemoryView block = store.block(layer, e);
      std::memcpy(block.data, drawn.data() + random() % 65536, block.bytes);
    }
  }
}

// The calls of one pass through the layers, on the device.
class ExpertPass {
 public:
  ExpertPass(const ps::ExpertShape& shape, const ps::Device& device, const ps::Pool& pool,
             std::int64_t tokens, std::vector<Ids> ids, const ps::Stream& stream)
      : ids_(std::move(ids)) {
    const auto rows = static_cast<std::size_t>(tokens * shape.hidden) * 2;
    const auto pairs = static_cast<std::size_t>(tokens * choices);
    x_ = ps::DeviceBuffer(device, rows);
    std::mt19937_64 random = generator(2);
    std::vector<std::uint16_t> x(rows / 2);
    for (std::uint16_t& each : x) {
      each = static_cast<std::uint16_t>(0x3F00 | (random() & 0x80FF));  // +- 0.5 to 2
    }
    send(x_.view(), x.data(), rows, stream);
    const std::vector<float> weights(pairs, 1.F / choices);
    weights_ = ps::DeviceBuffer(device, pairs * 4);
    send(weights_.view(), weights.data(), pairs * 4, stream);
    const ps::Place place = device.place();
    for (const Ids& each : ids_) {
      ps::DeviceBuffer& there = id_buffers_.emplace_back(device, pairs * 4);
      send(there.view(), each.data(), pairs * 4, stream);
      ps::DeviceBuffer& out = outs_.emplace_back(device, rows);
      calls_.push_back(
          {.x = ps::TensorView(x_.view().data, ps::DType::bf16, {tokens, shape.hidden}, place),
           .ids = ps::TensorView(there.view().data, ps::DType::i32, {tokens, choices}, place),
           .weights =
               ps::TensorView(weights_.view().data, ps::DType::f32, {tokens, choices}, place),
           .out = ps::TensorView(out.view().data, ps::DType::bf16, {tokens, shape.hidden}, place),
           .pool = &pool});
    }
  }

  void run(ps::StreamedExperts& experts, const ps::Stream& stream) const {
    for (std::size_t layer = 0; layer < calls_.size(); ++layer) {
      experts.forward(static_cast<std::int64_t>(layer), calls_[layer], stream);
    }
    stream.synchronize();
  }

  // Without copies: the kernels read the weights from the store's page-locked memory.
  void run_in_place(const ps::ExpertStore& store, const ps::Stream& stream) const {
    for (std::size_t layer = 0; layer < calls_.size(); ++layer) {
      ps::MoeOptions call = calls_[layer];
      // The memory has the same addresses on the host and on the device.
      const ps::MemoryView first{store.block(static_cast<std::int64_t>(layer), 0).data,
                                 layer_bytes(store), stream.device().place()};
      ps::ExpertStore::set_weights(store.shape(), first, store.shape().experts, call);
      ps::moe(call, stream);
    }
    stream.synchronize();
  }

  // Whether the results of `run` have the bits of moe() with all experts of a layer on the device.
  // Poisons them first.
  bool is_right(const std::function<void()>& run, const ps::ExpertStore& store,
                const ps::Stream& stream) const {
    return compare(run, store, stream,
                   [](const auto& got, const auto& wanted) { return got == wanted ? 0 : 1; }) == 0;
  }

  // The largest difference from those results, divided by the largest of them.
  double error(const std::function<void()>& run, const ps::ExpertStore& store,
               const ps::Stream& stream) const {
    return compare(run, store, stream, [](const auto& got, const auto& wanted) {
      double largest = 0, worst = 0;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double want = value_of(wanted[i]), difference = std::abs(value_of(got[i]) - want);
        if (std::isnan(difference)) return HUGE_VAL;
        largest = std::max(largest, std::abs(want));
        worst = std::max(worst, difference);
      }
      return worst / largest;
    });
  }

  // Layer and expert of everything that the pass needs, once.
  std::vector<std::pair<std::int64_t, std::int32_t>> needed() const {
    std::vector<std::pair<std::int64_t, std::int32_t>> found;
    for (std::size_t layer = 0; layer < ids_.size(); ++layer) {
      for (const std::int32_t e : std::set<std::int32_t>(ids_[layer].begin(), ids_[layer].end())) {
        found.emplace_back(static_cast<std::int64_t>(layer), e);
      }
    }
    return found;
  }

 private:
  using Bits = std::vector<std::uint16_t>;

  static double value_of(std::uint16_t bits) {
    const std::uint32_t wide = std::uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &wide, 4);
    return value;
  }

  // The largest difference(got, wanted) of any layer.
  template <class Difference>
  double compare(const std::function<void()>& run, const ps::ExpertStore& store,
                 const ps::Stream& stream, const Difference& difference) const {
    for (const ps::MoeOptions& call : calls_) ps::fill(call.out.memory(), 0xFF, stream);
    run();
    const ps::DeviceBuffer weights(stream.device(), layer_bytes(store));
    double largest = 0;
    for (std::size_t layer = 0; layer < calls_.size(); ++layer) {
      const Bits streamed = fetch(calls_[layer].out, stream);
      ps::MemoryView from = store.block(static_cast<std::int64_t>(layer), 0);
      from.bytes = weights.bytes();
      ps::copy(weights.view(), from, stream);
      ps::MoeOptions call = calls_[layer];
      ps::ExpertStore::set_weights(store.shape(), weights.view(), store.shape().experts, call);
      ps::moe(call, stream);
      largest = std::max<double>(largest, difference(streamed, fetch(call.out, stream)));
    }
    return largest;
  }

  static std::size_t layer_bytes(const ps::ExpertStore& store) {
    return static_cast<std::size_t>(store.shape().experts) * store.block_bytes();
  }
  static void send(ps::MemoryView to, const void* from, std::size_t bytes,
                   const ps::Stream& stream) {
    auto* data = const_cast<std::byte*>(static_cast<const std::byte*>(from));
    ps::copy(to.sub(0, bytes), {data, bytes, {}}, stream, {.allow_pageable = true});
    stream.synchronize();
  }
  static Bits fetch(const ps::TensorView& view, const ps::Stream& stream) {
    Bits bits(view.bytes() / 2);
    auto* data = reinterpret_cast<std::byte*>(bits.data());
    ps::copy({data, view.bytes(), {}}, view.memory(), stream, {.allow_pageable = true});
    stream.synchronize();
    return bits;
  }

  std::vector<Ids> ids_;
  ps::DeviceBuffer x_, weights_;
  std::vector<ps::DeviceBuffer> id_buffers_, outs_;
  std::vector<ps::MoeOptions> calls_;
};

}  // namespace bench
