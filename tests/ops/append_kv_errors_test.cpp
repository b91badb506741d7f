// What append_kv() refuses: every argument that is not as documented, on the CPU and on a fake GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/ops/append_kv.h"
#include "support/append_call.h"
#include "support/changed_views.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/refused_argument.h"

namespace ps::test {
namespace {

using Options = AppendKVOptions;

std::string refused(const Options& options, const Stream& stream) {
  return refused_argument([&] {
    append_kv(options, stream);
    stream.synchronize();
  });
}

class AppendKVErrors : public testing::Test {
 protected:
  std::string named(const std::function<void(Options&)>& spoil) {
    Options bad = call.options();
    spoil(bad);
    return refused(bad, stream);
  }
  std::string named_of_ragged(const std::function<void(Options&)>& spoil) {
    Options bad = ragged.options();
    bad.check = true;
    spoil(bad);
    return refused(bad, stream);
  }

  Stream stream{Device::cpu()};
  // k (2, 3, 2, 16), v (2, 3, 2, 8), q (2, 3, 4, 16), caches of 8 rows, tables (64, 6)
  AppendCall call{1, {.heads_q = 4, .dim_v = 8, .rotated = 12}};
  // k (6, 2, 16), 5 pages of 4 rows and 2 more
  AppendCall ragged{1,
                    {.rotated = 16,
                     .page_rows = 4,
                     .cu_new = {0, 2, 5},
                     .lengths = {6, 0},
                     .positions = {0, 1, 2, 3, 4, 5},
                     .advance = true}};
};

TEST_F(AppendKVErrors, NoneInACallThatIsRight) {
  EXPECT_EQ(named([](auto&) {}), "");
  EXPECT_EQ(named_of_ragged([](auto&) {}), "");
}

TEST_F(AppendKVErrors, Missing) {
  EXPECT_EQ(named([](auto& o) { o.k = {}; }), "k");
  EXPECT_EQ(named([](auto& o) { o.v = {}; }), "v");
  EXPECT_EQ(named([](auto& o) { o.k_cache = {}; }), "k_cache");
  EXPECT_EQ(named([](auto& o) { o.v_cache = {}; }), "v_cache");
  EXPECT_EQ(named([](auto& o) { o.q = {}; }), "q");
  EXPECT_EQ(named([](auto& o) { o.q_out = {}; }), "q_out");
  EXPECT_EQ(named([](auto& o) { o.cos = {}; }), "cos");
  EXPECT_EQ(named([](auto& o) { o.sin = {}; }), "sin");
  EXPECT_EQ(named([](auto& o) { o.cos = o.sin = {}; }), "q");
  EXPECT_EQ(named([](auto& o) { o.advance = true; }), "lengths");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.cos = o.sin = {}; }), "positions");
}

TEST_F(AppendKVErrors, Types) {
  EXPECT_EQ(named([](auto& o) { o.k = typed(o.k, DType::i32); }), "k");
  EXPECT_EQ(named([](auto& o) { o.v = typed(o.v, DType::f16); }), "v");
  EXPECT_EQ(named([](auto& o) { o.q = typed(o.q, DType::f16); }), "q");
  EXPECT_EQ(named([](auto& o) { o.q_out = typed(o.q_out, DType::f16); }), "q_out");
  EXPECT_EQ(named([](auto& o) { o.k_cache = typed(o.k_cache, DType::f16); }), "k_cache");
  EXPECT_EQ(named([](auto& o) { o.v_cache = typed(o.v_cache, DType::f16); }), "v_cache");
  EXPECT_EQ(named([](auto& o) { o.cos = typed(o.cos, DType::f16); }), "cos");
  EXPECT_EQ(named([](auto& o) { o.sin = typed(o.sin, DType::bf16); }), "sin");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.cu_new = typed(o.cu_new, DType::f32); }), "cu_new");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.lengths = typed(o.lengths, DType::f32); }), "lengths");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.pages = typed(o.pages, DType::f32); }), "pages");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.positions = typed(o.positions, DType::f32); }),
            "positions");
}

TEST_F(AppendKVErrors, Shapes) {
  EXPECT_EQ(named([](auto& o) { o.k = changed(o.k, {6, 2, 16}); }), "k");
  EXPECT_EQ(named([](auto& o) { o.k = changed(o.k, {2, 3, 0, 16}); }), "k");
  EXPECT_EQ(named([](auto& o) { o.k = changed(o.k, {1, 1, 1, 4097}); }), "k");
  EXPECT_EQ(named([](auto& o) { o.v = changed(o.v, {2, 2, 2, 8}); }), "v");
  EXPECT_EQ(named([](auto& o) { o.v = changed(o.v, {2, 3, 1, 8}); }), "v");
  EXPECT_EQ(named([](auto& o) { o.q = changed(o.q, {2, 3, 4, 8}); }), "q");
  EXPECT_EQ(named([](auto& o) { o.q_out = changed(o.q_out, {2, 3, 2, 16}); }), "q_out");
  EXPECT_EQ(named([](auto& o) { o.k_cache = changed(o.k_cache, {1, 8, 2, 16}); }), "k_cache");
  EXPECT_EQ(named([](auto& o) { o.k_cache = changed(o.k_cache, {2, 8, 1, 16}); }), "k_cache");
  EXPECT_EQ(named([](auto& o) { o.v_cache = changed(o.v_cache, {2, 7, 2, 8}); }), "v_cache");
  EXPECT_EQ(named([](auto& o) { o.cos = changed(o.cos, {64}); }), "cos");
  EXPECT_EQ(named([](auto& o) { o.cos = o.sin = changed(o.cos, {32, 9}); }), "cos");
  EXPECT_EQ(named([](auto& o) { o.sin = changed(o.sin, {63, 6}); }), "sin");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.cu_new = changed(o.cu_new, {1, 3}); }), "cu_new");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.lengths = changed(o.lengths, {1}); }), "lengths");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.pages = changed(o.pages, {1, 4}); }), "pages");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.positions = changed(o.positions, {5}); }), "positions");
}

TEST_F(AppendKVErrors, StridesAndMemory) {
  EXPECT_EQ(named([](auto& o) { o.k = changed(o.k, {2, 3, 2, 16}, {96, 32, 16, 2}); }), "k");
  EXPECT_EQ(named([](auto& o) { o.k_cache = changed(o.k_cache, {2, 8, 2, 16}, {0, 32, 16, 1}); }),
            "k_cache");
  EXPECT_EQ(named([](auto& o) { o.q_out = changed(o.q_out, {2, 3, 4, 16}, {0, 64, 16, 1}); }),
            "q_out");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.lengths = changed(o.lengths, {2}, {2}); }), "lengths");
  EXPECT_EQ(named([](auto& o) { o.k = moved(o.k, 1); }), "k");
  EXPECT_EQ(named([](auto& o) { o.k_cache = at_place(o.k_cache, {Memory::device, 0}); }),
            "k_cache");
  EXPECT_EQ(named([](auto& o) { o.k = changed(o.k_cache, {2, 3, 2, 16}); }), "k_cache");
  EXPECT_EQ(named([](auto& o) { o.v_cache = changed(o.k_cache, {2, 8, 2, 8}); }), "v_cache");
  EXPECT_EQ(named([](auto& o) { o.q_out = moved(o.q, 32); }), "q_out");
  EXPECT_EQ(named([](auto& o) { o.q_out = o.q; }), "");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.v_cache = moved(o.k_cache, 32); }), "v_cache");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.lengths = changed(o.cu_new, {2}); }), "lengths");
}

TEST_F(AppendKVErrors, Numbers) {
  EXPECT_EQ(named([](auto& o) { o.length = -1; }), "length");
  EXPECT_EQ(named([](auto& o) { o.length = 6; }), "length");
  EXPECT_EQ(named([](auto& o) { o.length = 5; }), "");
  EXPECT_EQ(named_of_ragged([](auto& o) { o.length = 1; }), "length");
  EXPECT_EQ(named([](auto& o) { o.pairs = static_cast<RotaryPairs>(9); }), "pairs");
  AppendCall longer(1, {.each = 9});
  EXPECT_EQ(refused(longer.options(), stream), "length");
  AppendCall beyond(1, {.each = 9, .lengths = {0, 0}});
  EXPECT_EQ(refused(beyond.options(), stream), "k") << "no length leaves room";
}

// The arrays that are read on the stream, which only `check` refuses, and then before anything is
// written.
TEST_F(AppendKVErrors, ACheckFindsRowsWithoutAPlace) {
  const auto with = [&](TensorView Options::* member, std::vector<std::int32_t> values) {
    return named_of_ragged([&](Options& o) {
      const std::span<const std::int64_t> shape = (o.*member).shape();
      o.*member = TensorView(values.data(), DType::i32, shape);
      o.advance = false;
    });
  };
  EXPECT_EQ(with(&Options::cu_new, {0, 3, 2}), "cu_new");
  EXPECT_EQ(with(&Options::cu_new, {-1, 2, 5}), "cu_new");
  EXPECT_EQ(with(&Options::cu_new, {0, 2, 7}), "cu_new");
  EXPECT_EQ(with(&Options::lengths, {7, 0}), "lengths");
  EXPECT_EQ(with(&Options::lengths, {-1, 0}), "lengths");
  EXPECT_EQ(with(&Options::lengths, {INT32_MAX, 0}), "lengths");
  EXPECT_EQ(with(&Options::pages, {0, 6, 1, 2}), "pages");
  EXPECT_EQ(with(&Options::pages, {0, 1, -1, 2}), "pages");
  EXPECT_EQ(with(&Options::pages, {-7, 1, 0, -7}), "") << "pages without new rows do not matter";
  EXPECT_EQ(with(&Options::positions, {0, 1, 2, 3, 64, 0}), "positions");
  EXPECT_EQ(with(&Options::positions, {0, -1, 2, 3, 4, 0}), "positions");
  AppendCall far(1, {.rotated = 16, .table_rows = 5, .length = 3});
  Options options = far.options();
  options.check = true;
  EXPECT_EQ(refused(options, stream), "cos");
}

TEST_F(AppendKVErrors, ACheckThatFailsLeavesTheCache) {
  AppendCall full(1, {.lengths = {0, 7}});
  Options options = full.options();
  const auto* const cache = static_cast<const std::byte*>(options.k_cache.data());
  const std::vector<std::byte> before(cache, cache + options.k_cache.bytes());
  options.check = true;
  EXPECT_EQ(refused(options, stream), "lengths");
  EXPECT_TRUE(std::equal(before.begin(), before.end(), cache));
}

// A fake GPU, whose memory is the host's, and a call there.
class AppendKVGpuErrors : public testing::Test {
 protected:
  explicit AppendKVGpuErrors(int major = 8)
      : machine(std::in_place,
                FakeOptions{.adjust = [major](int, cuda::Properties& gpu) { gpu.major = major; }}) {
    options = call.options([&](Strided& array) { return array.view(machine->gpu().place()); });
  }
  ~AppendKVGpuErrors() override {
    stream.reset();
    EXPECT_TRUE(is_clean(machine->driver()));
  }

  std::optional<FakeMachine> machine;
  std::optional<Stream> stream{machine->gpu()};
  AppendCall call{1, {.lengths = {0, 1}}};
  Options options;
};

TEST_F(AppendKVGpuErrors, MemoryOfOtherDevices) {
  for (const Place place : {Place{}, Place{Memory::pinned}, Place{Memory::device, 1}}) {
    Options bad = options;
    bad.lengths = at_place(bad.lengths, place);
    EXPECT_EQ(refused(bad, *stream), "lengths");
  }
}

TEST_F(AppendKVGpuErrors, ACheckCannotBeCaptured) {
  options.check = true;
  machine->driver().set_capturing(stream->native(), true);
  EXPECT_THROW(append_kv(options, *stream), Unsupported);
  machine->driver().set_capturing(stream->native(), false);
}

class AppendKVOldGpu : public AppendKVGpuErrors {
 protected:
  AppendKVOldGpu() : AppendKVGpuErrors(7) {}
};

TEST_F(AppendKVOldGpu, NeedsComputeCapability80) {
  try {
    append_kv(options, *stream);
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("needs compute capability 8.0"), std::string::npos);
  }
}

}  // namespace
}  // namespace ps::test
