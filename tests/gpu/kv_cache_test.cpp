#include "penstock/ops/kv_cache.h"

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "gpu/copies.h"
#include "gpu/gate.h"
#include "gpu/gpu_test.h"
#include "gpu/recording.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "penstock/host/pool.h"
#include "penstock/ops/attention.h"

namespace ps::test {
namespace {

class KVCacheGpu : public GpuTest {
 protected:
  static constexpr std::int64_t layers = 3, heads = 8, dim = 128;

  KVCache make(std::int64_t sequences, std::int64_t capacity) const {
    return {gpu,
            {.layers = layers,
             .sequences = sequences,
             .heads = heads,
             .dim = dim,
             .dtype = DType::f32,
             .capacity = capacity,
             .ahead = 16}};
  }
  // A row for every sequence, all elements of which are `value`.
  TensorView row(const DeviceBuffer& memory, std::int64_t sequences, float value) const {
    std::vector<float> elements(static_cast<std::size_t>(sequences * heads * dim), value);
    send(memory.view(), 0, elements, stream);
    return {memory.view().data, DType::f32, {sequences, 1, heads, dim}, gpu.place()};
  }
  // The first elements of the rows of a layer.
  std::vector<float> first_of(const TensorView& rows) const {
    std::vector<float> found;
    for (std::int64_t r = 0; r < rows.extent(1); ++r) {
      auto* at = static_cast<float*>(rows.data()) + r * rows.strides()[1];
      const MemoryView element{reinterpret_cast<std::byte*>(at), sizeof(float), gpu.place()};
      found.push_back(fetch<float>(element, 0, 1, stream)[0]);
    }
    return found;
  }

  Stream stream{gpu};
};

TEST_F(KVCacheGpu, GrowsInPlace) {
  constexpr std::int64_t sequences = 2, steps = 300;
  KVCache cache = make(sequences, 1 << 20);
  const DeviceBuffer memory(gpu, sequences * heads * dim * sizeof(float));
  const void* const address = cache.k(0).data();
  for (std::int64_t step = 0; step < steps; ++step) {
    const TensorView value = row(memory, sequences, static_cast<float>(step));
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      cache.append(layer, {.k = value, .v = value}, stream);
    }
  }
  EXPECT_EQ(cache.k(0).data(), address);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    std::vector<float> expected;
    for (std::int64_t step = 0; step < steps; ++step) expected.push_back(static_cast<float>(step));
    EXPECT_EQ(first_of(cache.k(layer)), expected);
    EXPECT_EQ(first_of(cache.v(layer)), expected);
  }
}

TEST_F(KVCacheGpu, GrowthDoesNotWaitForTheDevice) {
  KVCache cache = make(1, 1 << 16);
  cache.reserve(1);
  fill({static_cast<std::byte*>(cache.whole_k(0).data()), 8, gpu.place()}, 0, stream);
  stream.synchronize();
  const std::int64_t before = cache.reserved();
  Gate gate(cuda_stream(stream));
  cache.reserve(before + 1000);
  EXPECT_FALSE(gate.is_open());
  EXPECT_GE(cache.reserved(), before + 1000);
}

TEST_F(KVCacheGpu, MemoryStaysUntilTheWorkIsDone) {
  KVCache cache = make(1, 1 << 16);
  cache.reserve(4000);
  const DeviceBuffer memory(gpu, heads * dim * sizeof(float));
  const TensorView value = row(memory, 1, 5);
  cache.append(0, {.k = value, .v = value}, stream);
  // Behind the gate, nothing may have to be loaded.
  fill({static_cast<std::byte*>(cache.whole_k(2).data()), 8, gpu.place()}, 0, stream);
  stream.synchronize();
  const std::size_t mapped = cache.mapped_bytes();
  {
    Gate gate(cuda_stream(stream));
    const TensorView all = cache.whole_k(0);
    auto* last = static_cast<std::byte*>(all.data()) + 3999 * all.strides()[1] * 4;
    fill({last, heads * dim * sizeof(float), gpu.place()}, 1, stream);
    cache.shrink();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(cache.mapped_bytes(), mapped);
    gate.open();
  }
  for (int i = 0; i < 5000 && cache.mapped_bytes() == mapped; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LT(cache.mapped_bytes(), mapped);
  EXPECT_EQ(first_of(cache.k(0)), std::vector<float>{5});
  cache.reserve(4000);
  EXPECT_EQ(first_of(cache.k(0)), std::vector<float>{5});
}

// append() is refused in a capture; append_kv() with lengths on the device is not.
TEST_F(KVCacheGpu, IsUsedInAGraph) {
  KVCache cache = make(1, 1 << 12);
  cache.reserve(64);
  const DeviceBuffer memory(gpu, heads * dim * sizeof(float)), lengths(gpu, 256);
  const TensorView value = row(memory, 1, 3);
  send<std::int32_t>(lengths.view(), 0, {0}, stream);
  const AppendKVOptions options{
      .k = value,
      .v = value,
      .k_cache = cache.whole_k(1),
      .v_cache = cache.whole_v(1),
      .lengths = TensorView(lengths.view().data, DType::i32, {1}, gpu.place()),
      .advance = true};
  append_kv(options, stream);  // loads the kernels
  stream.synchronize();
  Recording recording(cuda_stream(stream));
  EXPECT_THROW(cache.append(0, {.k = value, .v = value}, stream), Unsupported);
  append_kv(options, stream);
  EXPECT_TRUE(recording.active());
  recording.replay(cuda_stream(stream));
  EXPECT_EQ(fetch<std::int32_t>(lengths.view(), 0, 1, stream)[0], 2);
}

// Kernels load whole boxes of keys, and know the length on the device alone: they must find memory
// behind the last row that may be used. The memory of these rows ends inside a row.
TEST_F(KVCacheGpu, AttentionReadsNoRowsWithoutMemory) {
  constexpr std::int64_t few_heads = 3, width = 96, queries = 70;
  KVCache cache(
      gpu, {.heads = few_heads, .dim = width, .capacity = 1 << 16, .ahead = 0, .block_bytes = 1});
  cache.reserve(1);
  const std::int64_t rows = cache.reserved();
  ASSERT_GT(rows, 0);
  ASSERT_LT(rows, cache.options().capacity);
  const auto first_rows = [&](const TensorView& whole) {
    const std::int64_t shape[] = {1, rows, few_heads, width};
    return TensorView(whole.data(), whole.dtype(), shape, whole.strides(), whole.place());
  };
  const TensorView k = cache.whole_k(0), v = cache.whole_v(0);
  const auto row_elements = static_cast<std::size_t>(few_heads * width);
  std::vector<std::uint16_t> elements(static_cast<std::size_t>(rows) * row_elements);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    elements[i] = static_cast<std::uint16_t>(0x3f00 + i * 7919 % 251);  // bf16 from 0.5 on
  }
  for (const TensorView& each : {k, v}) {
    send({static_cast<std::byte*>(each.data()), elements.size() * 2, gpu.place()}, 0, elements,
         stream);
  }
  const DeviceBuffer lengths(gpu, 256), q(gpu, queries * row_elements * 2);
  send<std::int32_t>(lengths.view(), 0, {static_cast<std::int32_t>(rows)}, stream);
  elements.resize(queries * row_elements);
  send(q.view(), 0, elements, stream);
  const Pool pool(gpu);
  for (const std::int64_t count : {std::int64_t{1}, queries}) {
    const std::size_t bytes = static_cast<std::size_t>(count) * row_elements * 2;
    const auto found = [&](const TensorView& keys, const TensorView& values) {
      const DeviceBuffer out(gpu, bytes);
      fill(out.view(), poison, stream);
      const auto rows_in = [&](const DeviceBuffer& memory) {
        return TensorView(memory.view().data, DType::bf16, {1, count, few_heads, width},
                          gpu.place());
      };
      attention({.q = rows_in(q),
                 .k = keys,
                 .v = values,
                 .out = rows_in(out),
                 .causal = true,
                 .lengths_k = TensorView(lengths.view().data, DType::i32, {1}, gpu.place()),
                 .pool = &pool},
                stream);
      return fetch<std::uint8_t>(out.view(), 0, bytes, stream);
    };
    EXPECT_TRUE(found(k, v) == found(first_rows(k), first_rows(v))) << count << " queries";
  }
}

TEST_F(KVCacheGpu, RunningOutOfMemoryPasses) {
  KVCache cache = make(64, 1 << 22);
  cache.reserve(10);
  const std::size_t mapped = cache.mapped_bytes();
  EXPECT_THROW(cache.reserve(1 << 21), OutOfMemory);
  EXPECT_TRUE(no_error_left());
  EXPECT_LE(cache.mapped_bytes(), 2 * mapped) << "the device's memory is still taken";
}

}  // namespace
}  // namespace ps::test
