// What append_attention() refuses beyond what append_kv() and attention() refuse, on the CPU and on
// a fake GPU.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/append_attention/arguments.h"
#include "penstock/base/error.h"
#include "penstock/ops/append_attention.h"
#include "support/append_attention_call.h"
#include "support/changed_views.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/guarded_memory.h"
#include "support/refused_argument.h"

namespace ps::test {
namespace {

using Spoil = std::function<void(AppendKVOptions&, AttentionOptions&)>;

std::string refused(const AppendAttentionCall::Arguments& of, const Stream& stream) {
  return refused_argument([&] {
    append_attention(of.append, of.attention, stream);
    stream.synchronize();
  });
}

class AppendAttentionErrors : public testing::Test {
 protected:
  std::string named(const Spoil& spoil) { return named(call, spoil); }
  std::string named_of_ragged(const Spoil& spoil) { return named(ragged, spoil); }
  std::string named(AppendAttentionCall& of, const Spoil& spoil) const {
    AppendAttentionCall::Arguments bad = of.arguments();
    spoil(bad.append, bad.attention);
    return refused(bad, stream);
  }

  Stream stream{Device::cpu()};
  // q (2, 3, 4, 16), k (2, 3, 2, 16), v (2, 3, 2, 8), caches of 9 rows
  AppendAttentionCall call{1,
                           {.each = 3,
                            .capacity = 9,
                            .dim = 16,
                            .dim_v = 8,
                            .rotated = 16,
                            .lengths = {0, 4},
                            .advance = true,
                            .sinks = true,
                            .first_k = {0, 1}}};
  // q (6, 4, 16), pages of 4 rows
  AppendAttentionCall ragged{1,
                             {.capacity = 8,
                              .dim = 16,
                              .dim_v = 16,
                              .rotated = 8,
                              .page_rows = 4,
                              .cu_new = {0, 2, 5},
                              .lengths = {6, 0},
                              .positions = true}};
};

TEST_F(AppendAttentionErrors, NoneInACallThatIsRight) {
  EXPECT_EQ(named([](auto&, auto&) {}), "");
  EXPECT_EQ(named_of_ragged([](auto&, auto&) {}), "");
}

TEST_F(AppendAttentionErrors, ArgumentsThatDoNotBelongHere) {
  EXPECT_EQ(named([](auto& a, auto& o) { a.q = o.q; }), "append.q");
  EXPECT_EQ(named([](auto& a, auto& o) { a.q_out = o.q; }), "append.q_out");
  EXPECT_EQ(named([](auto& a, auto& o) { o.k = a.k; }), "attention.k");
  EXPECT_EQ(named([](auto& a, auto& o) { o.v = a.v; }), "attention.v");
  EXPECT_EQ(named([](auto& a, auto& o) { o.lengths_k = a.lengths; }), "attention.lengths_k");
  EXPECT_EQ(named_of_ragged([](auto& a, auto& o) { o.cu_q = a.cu_new; }), "attention.cu_q");
  EXPECT_EQ(named_of_ragged([](auto& a, auto& o) { o.cu_k = a.cu_new; }), "attention.cu_k");
  EXPECT_EQ(named_of_ragged([](auto& a, auto& o) { o.pages = a.pages; }), "attention.pages");
}

TEST_F(AppendAttentionErrors, TypesAndShapes) {
  EXPECT_EQ(named([](auto&, auto& o) { o.q = {}; }), "q");
  EXPECT_EQ(named([](auto&, auto& o) { o.q = typed(o.q, DType::f16); }), "q");
  EXPECT_EQ(named([](auto&, auto& o) { o.q = changed(o.q, {2, 2, 4, 16}); }), "q");
  EXPECT_EQ(named([](auto&, auto& o) { o.q = changed(o.q, {6, 4, 16}); }), "q");
  EXPECT_EQ(named([](auto&, auto& o) { o.q = changed(o.q, {2, 3, 3, 16}); }), "out");
  EXPECT_EQ(named([](auto&, auto& o) {
              o.q = changed(o.q, {2, 3, 3, 16});
              o.out = changed(o.out, {2, 3, 3, 8});
            }),
            "q");
  EXPECT_EQ(named([](auto&, auto& o) { o.q = changed(o.q, {2, 3, 4, 8}); }), "k_cache");
  EXPECT_EQ(named_of_ragged([](auto&, auto& o) { o.q = changed(o.q, {5, 4, 16}); }), "q");
  EXPECT_EQ(named([](auto&, auto& o) { o.out = {}; }), "out");
  EXPECT_EQ(named([](auto&, auto& o) { o.out = changed(o.out, {2, 3, 2, 8}); }), "out");
  EXPECT_EQ(named([](auto&, auto& o) { o.first_k = changed(o.first_k, {1}); }), "first_k");
  EXPECT_EQ(named([](auto& a, auto&) { a.v_cache = {}; }), "v_cache");
  EXPECT_EQ(named([](auto&, auto& o) { o.max_q = -1; }), "max_q");
  AppendAttentionCall odd(1, {.dim = 12, .dim_v = 12, .rotated = 0});
  EXPECT_EQ(named(odd, [](auto&, auto&) {}), "q");
}

TEST_F(AppendAttentionErrors, ResultsThatOverlapInputs) {
  const auto over = [](const TensorView& view, const TensorView& memory) {
    return TensorView(memory.data(), view.dtype(), view.shape(), memory.place());
  };
  EXPECT_EQ(named([&](auto& a, auto& o) { o.out = over(o.out, a.k); }), "out");
  EXPECT_EQ(named([&](auto& a, auto& o) { o.out = over(o.out, a.k_cache); }), "out");
  EXPECT_EQ(named([&](auto& a, auto& o) { o.lse = over(o.lse, a.cos); }), "lse");
  EXPECT_EQ(named([&](auto& a, auto& o) { o.q = over(o.q, a.k_cache); }), "k_cache");
  EXPECT_EQ(named([&](auto& a, auto& o) { o.first_k = over(o.first_k, a.v_cache); }), "v_cache");
  EXPECT_EQ(named([&](auto& a, auto& o) { o.first_k = a.lengths; }), "lengths");
}

// By either option, and before anything is written.
TEST_F(AppendAttentionErrors, ACheckFindsWhatIsWrong) {
  const auto with = [&](bool of_append, TensorView AppendKVOptions::* member,
                        std::vector<std::int32_t> values, std::int64_t max_q = 0) {
    return named_of_ragged([&](AppendKVOptions& a, AttentionOptions& o) {
      (of_append ? a.check : o.check) = true;
      const std::span<const std::int64_t> shape = (a.*member).shape();
      a.*member = TensorView(values.data(), DType::i32, shape);
      a.cos = a.sin = a.positions = {};
      o.max_q = max_q;
    });
  };
  for (const bool of_append : {false, true}) {
    EXPECT_EQ(with(of_append, &AppendKVOptions::lengths, {6, 0}), "");
    EXPECT_EQ(with(of_append, &AppendKVOptions::lengths, {7, 0}), "lengths");
    EXPECT_EQ(with(of_append, &AppendKVOptions::cu_new, {0, 3, 2}), "cu_new");
    EXPECT_EQ(with(of_append, &AppendKVOptions::cu_new, {0, 2, 5}, 2), "cu_new");
    EXPECT_EQ(with(of_append, &AppendKVOptions::pages, {0, 9, 1, 2}), "pages");
    EXPECT_EQ(with(of_append, &AppendKVOptions::pages, {-1, 0, 1, 2}), "pages");
    EXPECT_EQ(with(of_append, &AppendKVOptions::pages, {0, 3, 1, -2}), "");
  }
  EXPECT_EQ(named_of_ragged([](auto&, auto& o) {
              o.check = true;
              o.max_k = 1;
            }),
            "lengths");
  AppendAttentionCall untouched(1, {.capacity = 9, .lengths = {0, 9}});
  AppendAttentionCall same(1, {.capacity = 9, .lengths = {0, 9}});
  EXPECT_EQ(named(untouched, [](auto& a, auto&) { a.check = true; }), "lengths");
  EXPECT_EQ(untouched.differs(same), "");
  EXPECT_EQ(named([](auto&, auto& o) {
              static std::int32_t first[] = {0, 8};
              o.first_k = TensorView(first, DType::i32, {2});
              o.check = true;
            }),
            "first_k");
}

// A fake GPU, whose memory is the host's, and a call there.
class AppendAttentionGpuErrors : public testing::Test {
 protected:
  explicit AppendAttentionGpuErrors(int major = 9)
      : machine(std::in_place,
                FakeOptions{.adjust = [major](int, cuda::Properties& gpu) { gpu.major = major; }}) {
    of = arguments(call);
  }
  ~AppendAttentionGpuErrors() override {
    pool.reset();
    stream.reset();
    EXPECT_TRUE(is_clean(machine->driver()));
  }

  AppendAttentionCall::Arguments arguments(AppendAttentionCall& made) {
    auto found = made.arguments([&](Strided& array) { return array.view(machine->gpu().place()); });
    found.attention.pool = &*pool;
    return found;
  }
  std::string named(const Spoil& spoil) const {
    AppendAttentionCall::Arguments bad = of;
    spoil(bad.append, bad.attention);
    return refused(bad, *stream);
  }

  std::optional<FakeMachine> machine;
  std::optional<Stream> stream{machine->gpu()};
  std::optional<Pool> pool{machine->gpu()};
  AppendAttentionCall call{1, {.lengths = {0, 1}}};
  AppendAttentionCall::Arguments of;
};

TEST_F(AppendAttentionGpuErrors, MemoryAndAlignment) {
  for (const Place place : {Place{}, Place{Memory::device, 1}}) {
    EXPECT_EQ(named([&](auto& a, auto&) { a.k = at_place(a.k, place); }), "k");
    EXPECT_EQ(named([&](auto&, auto& o) { o.q = at_place(o.q, place); }), "q");
  }
  EXPECT_EQ(named([](auto&, auto& o) { o.q = moved(o.q, 2); }), "q");
  EXPECT_EQ(named([](auto& a, auto&) { a.k_cache = moved(a.k_cache, 2); }), "k_cache");
  EXPECT_EQ(named([](auto&, auto& o) { o.pool = nullptr; }), "workspace");
}

TEST_F(AppendAttentionGpuErrors, Workspace) {
  // The rotated q is stored only by calls that the decode kernels do not take.
  AppendAttentionCall many(1, {.each = 17, .lengths = {0, 1}});
  auto spoilt = arguments(many);
  const auto bytes = [&] {
    return append_attention_workspace_bytes(spoilt.append, spoilt.attention);
  };
  const std::size_t apart = bytes();
  spoilt.attention.kernel = AttentionKernel::decode;
  const std::size_t decode = bytes();
  spoilt.attention.kernel = AttentionKernel::best;
  spoilt.append.cos = spoilt.append.sin = {};
  EXPECT_EQ(apart - bytes(), spoilt.attention.q.bytes());
  spoilt.attention.kernel = AttentionKernel::decode;
  EXPECT_EQ(bytes(), decode);

  spoilt = arguments(many);
  GuardedMemory here(apart);
  spoilt.attention.workspace = here.view();
  spoilt.attention.workspace.place = machine->gpu().place();
  spoilt.attention.workspace.bytes -= 1;
  EXPECT_EQ(refused(spoilt, *stream), "workspace");
}

TEST_F(AppendAttentionGpuErrors, OneKernelDoesAllOfItForFewNewRowsOfEveryType) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    for (const std::int64_t each : {16, 17}) {
      AppendAttentionCall made(1, {.each = each, .type = type});
      const auto few = arguments(made);
      const append_attending::Work work =
          append_attending::checked(few.append, few.attention, machine->gpu());
      EXPECT_EQ(work.is_fused(), each == 16);
    }
  }
}

TEST_F(AppendAttentionGpuErrors, ACheckCannotBeCaptured) {
  machine->driver().set_capturing(stream->native(), true);
  for (const bool of_append : {false, true}) {
    (of_append ? of.append.check : of.attention.check) = true;
    EXPECT_THROW(append_attention(of.append, of.attention, *stream), Unsupported);
  }
  machine->driver().set_capturing(stream->native(), false);
}

TEST_F(AppendAttentionGpuErrors, AnAllocationThatFailsLeavesNothing) {
  machine->driver().fail_call(1, cuda::memory_allocation, {"pool_alloc"});
  EXPECT_THROW(append_attention(of.append, of.attention, *stream), OutOfMemory);
  EXPECT_EQ(pool->statistics().in_use, 0U);
}

class AppendAttentionOldGpu : public AppendAttentionGpuErrors {
 protected:
  AppendAttentionOldGpu() : AppendAttentionGpuErrors(7) {}
};

TEST_F(AppendAttentionOldGpu, NeedsComputeCapability80) {
  try {
    append_attention(of.append, of.attention, *stream);
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_NE(
        std::string(error.what()).find("append_attention on cuda:0: needs compute capability 8.0"),
        std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace ps::test
