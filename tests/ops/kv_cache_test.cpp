#include "penstock/ops/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/ops/attention.h"
#include "support/changed_views.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/refused_argument.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

// Rows of every layer, appended to a cache and kept beside it.
class Rows {
 public:
  Rows(std::int64_t sequences, std::int64_t heads, std::int64_t dim, std::uint32_t seed)
      : sequences_(sequences), heads_(heads), dim_(dim), random_(seed) {}

  TensorView next(std::int64_t count) {
    values_.assign(static_cast<std::size_t>(sequences_ * count * heads_ * dim_), 0.F);
    for (float& value : values_) value = static_cast<float>(random_() % 1000);
    return {values_.data(), DType::f32, {sequences_, count, heads_, dim_}};
  }
  const std::vector<float>& values() const { return values_; }

 private:
  std::int64_t sequences_, heads_, dim_;
  std::mt19937 random_;
  std::vector<float> values_;
};

float at(const TensorView& view, std::int64_t b, std::int64_t r, std::int64_t h, std::int64_t d) {
  const auto strides = view.strides();
  return static_cast<const float*>(
      view.data())[b * strides[0] + r * strides[1] + h * strides[2] + d * strides[3]];
}

class KVCacheTest : public testing::Test {
 protected:
  static constexpr std::int64_t sequences = 3, heads = 2, dim = 8, dim_v = 5, layers = 2;

  // Appends `count` rows to every layer.
  void append(std::int64_t count) {
    append(count, [&](std::int64_t layer, const TensorView& new_k, const TensorView& new_v) {
      cache.append(layer, {.k = new_k, .v = new_v}, stream);
    });
  }
  template <class AppendTo>
  void append(std::int64_t count, const AppendTo& append_to) {
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const TensorView new_k = k.next(count), new_v = v.next(count);
      append_to(layer, new_k, new_v);
      stream.synchronize();
      auto& kept = expected[static_cast<std::size_t>(layer)];
      for (std::int64_t r = 0; r < count; ++r) {
        std::vector<float> row;
        for (std::int64_t b = 0; b < sequences; ++b) {
          for (std::int64_t h = 0; h < heads; ++h) {
            for (std::int64_t d = 0; d < dim; ++d) row.push_back(at(new_k, b, r, h, d));
            for (std::int64_t d = 0; d < dim_v; ++d) row.push_back(at(new_v, b, r, h, d));
          }
        }
        kept.push_back(row);
      }
    }
  }
  void expect_rows() const {
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const auto& kept = expected[static_cast<std::size_t>(layer)];
      ASSERT_EQ(cache.length(layer), static_cast<std::int64_t>(kept.size()));
      const TensorView has_k = cache.k(layer), has_v = cache.v(layer);
      for (std::int64_t r = 0; r < cache.length(layer); ++r) {
        std::vector<float> row;
        for (std::int64_t b = 0; b < sequences; ++b) {
          for (std::int64_t h = 0; h < heads; ++h) {
            for (std::int64_t d = 0; d < dim; ++d) row.push_back(at(has_k, b, r, h, d));
            for (std::int64_t d = 0; d < dim_v; ++d) row.push_back(at(has_v, b, r, h, d));
          }
        }
        ASSERT_EQ(row, kept[static_cast<std::size_t>(r)]) << "row " << r << ", layer " << layer;
      }
    }
  }

  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
  Stream stream{Device::cpu()};
  KVCache cache{Device::cpu(),
                {.layers = layers,
                 .sequences = sequences,
                 .heads = heads,
                 .dim = dim,
                 .dim_v = dim_v,
                 .dtype = DType::f32,
                 .capacity = 300,
                 .ahead = 7,
                 .block_bytes = 1}};
  Rows k{sequences, heads, dim, 1}, v{sequences, heads, dim_v, 2};
  std::vector<std::vector<float>> expected[layers];
};

TEST_F(KVCacheTest, KeepsWhatIsAppended) {
  const void* const address = cache.k(0).data();
  append(40);
  for (int i = 0; i < 100; ++i) append(1);
  append(0);
  append(160);
  expect_rows();
  EXPECT_EQ(cache.k(0).data(), address);
  EXPECT_EQ(cache.reserved(), 300);
  EXPECT_EQ(cache.whole_v(1).extent(1), 300);
}

TEST_F(KVCacheTest, CropsAndShrinks) {
  append(200);
  const std::size_t before = cache.mapped_bytes();
  cache.crop(50);
  for (auto& each : expected) each.resize(50);
  expect_rows();
  EXPECT_EQ(cache.mapped_bytes(), before);
  cache.shrink();
  while (cache.reserved() >= 200) std::this_thread::yield();
  append(3);
  expect_rows();
  cache.crop(0);
  for (auto& each : expected) each.clear();
  cache.shrink();
  append(5);
  expect_rows();
  EXPECT_LT(cache.mapped_bytes(), before);
}

// As a graph appends them.
TEST_F(KVCacheTest, KeepsRowsThatOthersHaveAppendedOnceTheirNumberIsSet) {
  append(5);
  cache.reserve(300);
  append(95, [&](std::int64_t layer, const TensorView& new_k, const TensorView& new_v) {
    append_kv({.k = new_k,
               .v = new_v,
               .k_cache = cache.whole_k(layer),
               .v_cache = cache.whole_v(layer),
               .length = 5},
              stream);
  });
  EXPECT_EQ(cache.length(1), 5);
  cache.set_length(100);
  expect_rows();
  cache.shrink();
  while (cache.reserved() == 300) std::this_thread::yield();
  EXPECT_GE(cache.reserved(), 100);
  append(1);
  expect_rows();
}

TEST_F(KVCacheTest, AFullCacheNamesItsCapacity) {
  append(299);
  try {
    const TensorView new_k = k.next(2), new_v = v.next(2);
    cache.append(0, {.k = new_k, .v = new_v}, stream);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "k");
    EXPECT_NE(std::string(error.what()).find("a capacity of 300"), std::string::npos);
  }
  expect_rows();
  append(1);
  expect_rows();
}

TEST_F(KVCacheTest, ErrorsNameTheArgumentAndLeaveTheCache) {
  append(4);
  const TensorView new_k = k.next(1), new_v = v.next(1);
  const auto append_to = [&](std::int64_t layer, const KVRows& rows) {
    return refused_argument([&] { cache.append(layer, rows, stream); });
  };
  EXPECT_EQ(append_to(2, {.k = new_k, .v = new_v}), "layer");
  EXPECT_EQ(append_to(-1, {.k = new_k, .v = new_v}), "layer");
  EXPECT_EQ(append_to(0, {.k = new_v, .v = new_v}), "k");
  EXPECT_EQ(append_to(0, {.k = new_k, .v = new_k}), "v");
  EXPECT_EQ(append_to(0, {.k = typed(new_k, DType::i32), .v = new_v}), "k");
  EXPECT_EQ(append_to(0, {.k = changed(new_k, {2, 1, 2, 8}), .v = new_v}), "k");
  EXPECT_EQ(append_to(0, {.k = new_k, .v = changed(new_v, {3, 1, 1, 5})}), "v");
  EXPECT_EQ(append_to(0, {.k = cache.k(0), .v = new_v}), "k");
  const TensorView own = changed(cache.v(0), {3, 1, 2, 5}, {10, 30, 5, 1});
  EXPECT_EQ(append_to(0, {.k = new_k, .v = own}), "v");
  EXPECT_EQ(append_to(0, {.k = {}, .v = new_v}), "k");
  EXPECT_EQ(append_to(0, {.k = new_k, .v = new_v, .cos = new_k}), "sin");
  EXPECT_EQ(refused_argument([&] { cache.crop(-1); }), "rows");
  EXPECT_EQ(refused_argument([&] { cache.reserve(301); }), "rows");
  EXPECT_EQ(refused_argument([&] { cache.set_length(-1); }), "rows");
  EXPECT_EQ(refused_argument([&] { cache.set_length(cache.reserved() + 1); }), "rows");
  EXPECT_EQ(refused_argument([&] { (void)cache.k(2); }), "layer");
  expect_rows();

  using Options = KVCacheOptions;
  const auto made = [&](const std::function<void(Options&)>& spoil) {
    Options options{.capacity = 10};
    spoil(options);
    return refused_argument([&] { const KVCache other(Device::cpu(), options); });
  };
  EXPECT_EQ(made([](Options&) {}), "");
  EXPECT_EQ(made([](Options& o) { o.layers = 0; }), "layers");
  EXPECT_EQ(made([](Options& o) { o.sequences = 0; }), "sequences");
  EXPECT_EQ(made([](Options& o) { o.heads = 0; }), "heads");
  EXPECT_EQ(made([](Options& o) { o.dim = 0; }), "dim");
  EXPECT_EQ(made([](Options& o) { o.dim_v = -1; }), "dim_v");
  EXPECT_EQ(made([](Options& o) { o.capacity = 0; }), "capacity");
  EXPECT_EQ(made([](Options& o) { o.initial = 11; }), "initial");
  EXPECT_EQ(made([](Options& o) { o.ahead = -1; }), "ahead");
  EXPECT_EQ(made([](Options& o) { o.dtype = DType::i32; }), "dtype");
}

// attention() on whole_k() may load whole boxes of keys behind the last row that may be used.
TEST(KVCacheReserved, LeavesMemoryForWholeBoxesOfKeys) {
  constexpr std::int64_t row_bytes = 3 * 40 * 2, capacity = 5000;  // blocks end inside rows
  KVCache cache(Device::cpu(), {.heads = 3,
                                .dim = 40,
                                .dtype = DType::f16,
                                .capacity = capacity,
                                .initial = 5,
                                .ahead = 0,
                                .block_bytes = 1});
  const auto expect_room = [&](std::int64_t rows) {
    const auto mapped = static_cast<std::int64_t>(cache.mapped_bytes()) / 2 / row_bytes;
    EXPECT_GE(cache.reserved(), rows);
    EXPECT_LE(std::min(cache.reserved() + 128, capacity), mapped) << rows << " rows";
  };
  expect_room(5);
  for (const std::int64_t rows : {0, 1, 17, 300, 301, 4000}) {
    cache.reserve(rows);
    expect_room(rows);
  }
  std::vector<std::uint16_t> row(3 * 40);
  const TensorView view(row.data(), DType::f16, {1, 1, 3, 40});
  const Stream stream(Device::cpu());
  cache.append(0, {.k = view, .v = view}, stream);
  const std::int64_t before = cache.reserved();
  cache.shrink();
  while (cache.reserved() == before) std::this_thread::yield();
  cache.reserve(1);
  expect_room(1);
  cache.reserve(capacity - 1);
  expect_room(capacity - 1);
  EXPECT_EQ(cache.reserved(), capacity);
}

TEST(KVCacheBlocks, HoldManyRowsUnlessTheyAreLarge) {
  constexpr std::size_t KiB = 1024, MiB = KiB * KiB;
  const auto mapped = [](std::int64_t sequences, std::size_t block_bytes) {
    KVCache cache(Device::cpu(), {.layers = 2,
                                  .sequences = sequences,
                                  .heads = 8,
                                  .capacity = 10000,
                                  .ahead = 0,
                                  .block_bytes = block_bytes});
    cache.reserve(1);
    return cache.mapped_bytes();  // of four planes, with 129 rows
  };
  EXPECT_EQ(mapped(1, 0), 4 * 512 * 2 * KiB);
  EXPECT_EQ(mapped(64, 0), 4 * 32 * MiB);
  EXPECT_EQ(mapped(1024, 0), 4 * 3 * 64 * 2 * MiB);
  EXPECT_EQ(mapped(1, 64 * KiB), 4 * 5 * 64 * KiB);
}

// K is rotated by the rows' positions, and attention() reads the cache.
TEST(KVCacheAttention, IsThatOfTheRowsAtOnce) {
  constexpr std::int64_t rows = 20, dim = 16;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  const auto values = [&](std::int64_t count) {
    std::vector<float> made(static_cast<std::size_t>(count));
    for (float& each : made) each = normal(random);
    return made;
  };
  std::vector<float> k = values(rows * dim), v = values(rows * dim), q = values(rows * dim);
  std::vector<float> cos(rows * dim / 2), sin(cos.size());
  for (std::size_t i = 0; i < cos.size(); ++i) {
    const std::size_t row = i / 8, column = i % 8;
    const double angle = static_cast<double>(row) / (1.0 + static_cast<double>(column));
    cos[i] = static_cast<float>(std::cos(angle)), sin[i] = static_cast<float>(std::sin(angle));
  }
  const auto generated = [&](std::int64_t step) {
    const Stream stream(Device::cpu());
    KVCache cache(Device::cpu(),
                  {.heads = 1, .dim = dim, .dtype = DType::f32, .capacity = rows, .initial = 3});
    std::vector<float> turned(k.size()), out(k.size());
    for (std::int64_t row = 0; row < rows; row += step) {
      const auto part = [&](std::vector<float>& all) {
        return TensorView(all.data() + row * dim, DType::f32, {1, step, 1, dim});
      };
      cache.append(0,
                   {.k = part(k),
                    .v = part(v),
                    .cos = TensorView(cos.data(), DType::f32, {rows, dim / 2}),
                    .sin = TensorView(sin.data(), DType::f32, {rows, dim / 2}),
                    .q = part(q),
                    .q_out = part(turned)},
                   stream);
      attention(
          {.q = part(turned), .k = cache.k(0), .v = cache.v(0), .out = part(out), .causal = true},
          stream);
    }
    stream.synchronize();
    return out;
  };
  const std::vector<float> at_once = generated(rows), one_by_one = generated(1);
  for (std::size_t i = 0; i < at_once.size(); ++i) {
    EXPECT_NEAR(one_by_one[i], at_once[i], 1e-5) << i;
  }
}

TEST(KVCacheGpu, RefusesACaptureAndStreamsOfOtherDevices) {
  FakeMachine machine;
  {
    const Device gpu = machine.gpu();
    const Stream stream(gpu), other(Device::cpu());
    KVCache cache(gpu, {.dim = 8, .capacity = 10});
    EXPECT_TRUE(cache.device() == gpu);
    float row[8] = {};
    const TensorView view(row, DType::bf16, {1, 1, 1, 8}, gpu.place());
    EXPECT_THROW(cache.append(0, {.k = view, .v = view}, other), InvalidArgument);
    machine.driver().set_capturing(stream.native(), true);
    EXPECT_THROW(cache.append(0, {.k = view, .v = view}, stream), Unsupported);
    cache.reserve(5);
    machine.driver().set_capturing(stream.native(), false);
    EXPECT_EQ(cache.length(0), 0);
    KVCache moved(std::move(cache));
    EXPECT_GE(moved.reserved(), 5);
  }
  EXPECT_TRUE(is_clean(machine.driver()));
}

TEST(KVCacheGpu, RunningOutOfMemoryNamesIt) {
  FakeMachine machine({.device_bytes = std::size_t{4} << 20});
  {
    KVCache cache(machine.gpu(),
                  {.layers = 4, .heads = 8, .capacity = 1 << 20, .ahead = 0, .block_bytes = 1});
    try {
      cache.reserve(1 << 16);
      ADD_FAILURE();
    } catch (const OutOfMemory& error) {
      EXPECT_NE(std::string(error.what()).find("cuda:0"), std::string::npos) << error.what();
    }
    cache.reserve(10);
  }
  EXPECT_TRUE(is_clean(machine.driver()));
}

}  // namespace
}  // namespace ps::test
