// Experts with random weights in page-locked memory and on a GPU, and calls on a GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "gpu/copies.h"
#include "gpu/gpu_test.h"
#include "penstock/host/buffer.h"
#include "penstock/outofcore/experts.h"

namespace ps::test {

// Bits of normal numbers of a type.
inline std::vector<std::uint8_t> normal_bytes(DType type, std::size_t count, double size,
                                              std::mt19937& random) {
  std::normal_distribution<double> normal(0, size);
  std::vector<std::uint8_t> bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(normal(random));
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    if (type == DType::f32) {
      std::memcpy(&bytes[4 * i], &bits, 4);
      continue;
    }
    // Of f16, numbers in [1/16, 1/8): their distribution does not matter.
    const auto half = static_cast<std::uint16_t>(
        type == DType::bf16 ? bits >> 16
                            : (bits >> 16 & 0x8000U) | 0x2C00U | (bits >> 13 & 0x3FFU));
    std::memcpy(&bytes[2 * i], &half, 2);
  }
  return bytes;
}

// The experts of a model in page-locked memory, and the same on the GPU.
class Weights {
 public:
  // `random_bits`: of finite values that do not compress.
  Weights(const Device& gpu, const ExpertShape& shape, const Stream& stream, std::mt19937& random,
          bool random_bits = false)
      : store(gpu, shape), resident_(gpu, store.bytes()) {
    const double size = 1 / std::sqrt(static_cast<double>(shape.hidden));
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      for (std::int64_t e = 0; e < shape.experts; ++e) {
        const MemoryView block = store.block(layer, e);
        const auto bytes =
            normal_bytes(shape.dtype, block.bytes / size_of(shape.dtype), size, random);
        std::memcpy(block.data, bytes.data(), block.bytes);
        if (!random_bits) continue;
        auto* values = block.as<std::uint16_t>();
        for (std::size_t i = 0; i < block.bytes / 2; ++i) {
          values[i] = static_cast<std::uint16_t>(random() & 0xBFFF);
        }
      }
    }
    copy(resident_.view(), {store.block(0, 0).data, store.bytes(), {Memory::pinned, cpu_index}},
         stream);
    stream.synchronize();
  }

  // `call` with all weights of a layer on the GPU.
  MoeOptions resident(std::int64_t layer, MoeOptions call) const {
    const ExpertShape& shape = store.shape();
    const std::size_t bytes = static_cast<std::size_t>(shape.experts) * store.block_bytes();
    const MemoryView first = resident_.view().sub(static_cast<std::size_t>(layer) * bytes, bytes);
    ExpertStore::set_weights(shape, first, shape.experts, call);
    return call;
  }

  ExpertStore store;

 private:
  DeviceBuffer resident_;
};

// A call's arrays on the GPU.
class LayerCall {
 public:
  LayerCall(const Device& gpu, const ExpertShape& shape, std::int64_t tokens, std::int64_t choices,
            double zipf, const Stream& stream, std::mt19937& random)
      : memory_(gpu, 64 + static_cast<std::size_t>(tokens * shape.hidden) * 8 +
                         static_cast<std::size_t>(tokens * choices) * 16 + 4096),
        stream_(stream) {
    const auto d = shape.hidden;
    const auto elements = static_cast<std::size_t>(tokens * d);
    const std::size_t row_bytes = (elements * size_of(shape.dtype) + 255) / 256 * 256;
    const auto pairs = static_cast<std::size_t>(tokens * choices);
    const Place place = memory_.view().place;
    send(memory_.view(), 0, normal_bytes(shape.dtype, elements, 1, random), stream);
    std::vector<double> shares;
    for (std::int64_t e = 0; e < shape.experts; ++e) {
      shares.push_back(1 / std::pow(static_cast<double>(e + 1), zipf));
    }
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<double> left = shares;
      for (std::int64_t k = 0; k < choices; ++k) {
        std::discrete_distribution<std::int32_t> draw(left.begin(), left.end());
        ids.push_back(draw(random));
        left[static_cast<std::size_t>(ids.back())] = 0;
      }
    }
    send(memory_.view(), 2 * row_bytes, ids, stream);
    std::vector<float> weights(pairs);
    for (float& weight : weights) weight = static_cast<float>(random() % 1000) / 1000;
    send(memory_.view(), 2 * row_bytes + (pairs * 4 + 255) / 256 * 256, weights, stream);
    std::byte* data = memory_.view().data;
    options.x = TensorView(data, shape.dtype, {tokens, d}, place);
    options.out = TensorView(data + row_bytes, shape.dtype, {tokens, d}, place);
    options.ids = TensorView(data + 2 * row_bytes, DType::i32, {tokens, choices}, place);
    options.weights = TensorView(data + 2 * row_bytes + (pairs * 4 + 255) / 256 * 256, DType::f32,
                                 {tokens, choices}, place);
  }

  void poison_out() const { fill(options.out.memory(), poison, stream_); }
  std::vector<std::uint8_t> out() const {
    const MemoryView view = options.out.memory();
    return fetch<std::uint8_t>(view, 0, view.bytes, stream_);
  }

  MoeOptions options;

 private:
  DeviceBuffer memory_;
  Stream stream_;
};

inline std::size_t bytes_for(const ExpertShape& shape, std::size_t slots) {
  const std::size_t block = ExpertStore::block_bytes(shape);
  return StreamedExperts::least_bytes(shape) % block + slots * block;
}
inline std::size_t bytes_for_compressed(const ExpertShape& shape, std::size_t slots) {
  return bytes_for(shape, slots) + StreamedExperts::least_bytes(shape, 0, 64, true) -
         StreamedExperts::least_bytes(shape);
}
inline std::size_t least_slots(const ExpertShape& shape) {
  return StreamedExperts::least_bytes(shape) / ExpertStore::block_bytes(shape);
}

}  // namespace ps::test
