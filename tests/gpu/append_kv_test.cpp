#include "penstock/ops/append_kv.h"

#include <cstdint>
#include <random>

#include "gpu/copies.h"
#include "gpu/gpu_test.h"
#include "gpu/recording.h"
#include "penstock/base/error.h"
#include "penstock/host/cuda.h"
#include "support/append_call.h"

namespace ps::test {
namespace {

class AppendKVGpu : public GpuTest {
 protected:
  void expect_right(std::uint32_t seed, const AppendCase& of, bool check = false) const {
    const Stream stream(gpu);
    AppendCall call(seed, of);
    call.expect();
    Copies copies(gpu, stream);
    AppendKVOptions options = call.options([&](Strided& array) { return copies.of(array); });
    options.check = check;
    append_kv(options, stream);
    copies.fetch();
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
};

TEST_F(AppendKVGpu, GivesTheBitsOfTheCpu) {
  for (std::uint32_t seed = 1; seed <= 1500 && !HasFatalFailure(); ++seed) {
    expect_right(seed, random_append(seed));
  }
}

TEST_F(AppendKVGpu, ShapesOfModels) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours}) {
      for (const std::int64_t page_rows : {0, 16}) {
        for (const std::int64_t rotated : {64, 128}) {
          expect_right(7,
                       {.sequences = 3,
                        .each = 40,
                        .capacity = 512,
                        .heads_k = 8,
                        .heads_q = 32,
                        .dim = 128,
                        .dim_v = 128,
                        .rotated = rotated,
                        .pairs = pairs,
                        .type = type,
                        .page_rows = page_rows,
                        .lengths = {0, 100, 300},
                        .table_rows = 512,
                        .advance = true},
                       true);
        }
      }
    }
  }
}

TEST_F(AppendKVGpu, SurvivesAbsurdBegins) {
  const Stream stream(gpu);
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    AppendCall call(1, {.cu_new = {0, 3, 5}, .lengths = {1, 2}, .advance = true});
    auto* const begins = static_cast<std::int32_t*>(call.options().cu_new.data());
    for (int b = 0; b < 3; ++b) {
      begins[b] = static_cast<std::int32_t>(random() % 3 == 0 ? random() : random() % 8);
    }
    Copies copies(gpu, stream);
    append_kv(call.options([&](Strided& array) { return copies.of(array); }), stream);
    copies.fetch();
    EXPECT_TRUE(call.surroundings_untouched());
    const auto* const lengths = static_cast<std::int32_t*>(call.options().lengths.data());
    for (int b = 0; b < 2; ++b) EXPECT_TRUE(lengths[b] >= 0 && lengths[b] <= 8) << lengths[b];
  }
}

// A graph that appends a row at every replay, where the lengths on the device say.
TEST_F(AppendKVGpu, MayBeCaptured) {
  const Stream stream(gpu);
  AppendCall call(1, {.each = 1, .rotated = 16, .lengths = {0, 3}, .advance = true});
  Copies copies(gpu, stream);
  const AppendKVOptions options = call.options([&](Strided& array) { return copies.of(array); });
  append_kv(options, stream);  // loads the kernels
  stream.synchronize();
  Recording recording(cuda_stream(stream));
  append_kv(options, stream);
  EXPECT_TRUE(recording.active());
  recording.replay(cuda_stream(stream));
  copies.fetch();
  const auto* lengths = static_cast<const std::int32_t*>(call.options().lengths.data());
  EXPECT_EQ(lengths[0], 2);
  EXPECT_EQ(lengths[1], 5);
}

TEST_F(AppendKVGpu, ACheckFindsRowsWithoutAPlace) {
  const Stream stream(gpu);
  AppendCall call(1, {.page_rows = 3, .lengths = {0, 8}});
  Copies copies(gpu, stream);
  AppendKVOptions options = call.options([&](Strided& array) { return copies.of(array); });
  options.check = true;
  EXPECT_THROW(append_kv(options, stream), InvalidArgument);
}

}  // namespace
}  // namespace ps::test
