// What attention() refuses: every argument that is not as documented, on the CPU and on a fake GPU.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/attention/arguments.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/ops/attention.h"
#include "support/attention_call.h"
#include "support/changed_views.h"
#include "support/expect_clean.h"
#include "support/fake_machine.h"
#include "support/guarded_memory.h"

namespace ps::test {
namespace {

using Shape = std::vector<std::int64_t>;

// The argument that a call is refused for, and what it was; "" if it is not refused.
struct AttentionRefusal {
  std::string argument, given;
};
AttentionRefusal refusal(const AttentionOptions& options, const Stream& stream) {
  try {
    attention(options, stream);
    stream.synchronize();
  } catch (const InvalidArgument& error) {
    EXPECT_FALSE(error.expected().empty());
    EXPECT_FALSE(error.given().empty());
    return {error.argument(), error.given()};
  }
  return {};
}

// A call that is right but for what tests spoil.
class AttentionErrors : public testing::Test {
 protected:
  std::string named(const std::function<void(AttentionOptions&)>& spoil) {
    AttentionOptions bad = call.options();
    spoil(bad);
    return refusal(bad, stream).argument;
  }
  std::string named_of_lengths(const std::function<void(AttentionOptions&)>& spoil) {
    AttentionOptions bad = lengths.options();
    bad.check = true;
    spoil(bad);
    return refusal(bad, stream).argument;
  }

  Stream stream{Device::cpu()};
  // q (2, 5, 4, 16), k and v (2, 7, 2, 16)
  AttentionCall call{1, {.heads_q = 4, .sinks = true, .first_k = {0, 1}, .lengths_k = {7, 6}}};
  AttentionCall lengths{1,
                        {.q_rows = 9,
                         .k_rows = 8,
                         .cu_q = {0, 4, 9},
                         .cu_k = {0, 3, 8},
                         .first_k = {0, 1},
                         .lengths_k = {3, 5}}};
};

TEST_F(AttentionErrors, NoneInACallThatIsRight) {
  EXPECT_EQ(named([](auto&) {}), "");
  EXPECT_EQ(named_of_lengths([](auto&) {}), "");
}

TEST_F(AttentionErrors, Missing) {
  EXPECT_EQ(named([](auto& o) { o.q = {}; }), "q");
  EXPECT_EQ(named([](auto& o) { o.k = {}; }), "k");
  EXPECT_EQ(named([](auto& o) { o.v = {}; }), "v");
  EXPECT_EQ(named([](auto& o) { o.out = {}; }), "out");
}

TEST_F(AttentionErrors, Types) {
  EXPECT_EQ(named([](auto& o) { o.q = typed(o.q, DType::i32); }), "q");
  EXPECT_EQ(named([](auto& o) { o.k = typed(o.k, DType::f16); }), "k");
  EXPECT_EQ(named([](auto& o) { o.v = typed(o.v, DType::f16); }), "v");
  EXPECT_EQ(named([](auto& o) { o.out = typed(o.out, DType::f16); }), "out");
  EXPECT_EQ(named([](auto& o) { o.lse = typed(o.lse, DType::i32); }), "lse");
  EXPECT_EQ(named([](auto& o) { o.sinks = typed(o.sinks, DType::i32); }), "sinks");
  EXPECT_EQ(named([](auto& o) { o.first_k = typed(o.first_k, DType::f32); }), "first_k");
  EXPECT_EQ(named([](auto& o) { o.lengths_k = typed(o.lengths_k, DType::f32); }), "lengths_k");
  EXPECT_EQ(named_of_lengths([](auto& o) { o.cu_q = typed(o.cu_q, DType::f32); }), "cu_q");
  EXPECT_EQ(named_of_lengths([](auto& o) { o.cu_k = typed(o.cu_k, DType::f32); }), "cu_k");
}

TEST_F(AttentionErrors, Shapes) {
  EXPECT_EQ(named([](auto& o) { o.q = changed(o.q, {5, 4, 16}); }), "q");
  EXPECT_EQ(named([](auto& o) { o.q = changed(o.q, {2, 5, 0, 16}); }), "q");
  EXPECT_EQ(named([](auto& o) { o.q = changed(o.q, {2, 5, 3, 16}); }), "out");
  EXPECT_EQ(named([](auto& o) { o.q = changed(o.q, {2, 5, 4, 12}); }), "q");
  EXPECT_EQ(named([](auto& o) { o.q = changed(o.q, {2, 5, 4, 0}); }), "q");
  EXPECT_EQ(named([](auto& o) { o.q = changed(o.q, {1, 5, 4, 264}); }), "q");
  EXPECT_EQ(named([](auto& o) { o.q = changed(o.q, {2, 5, 4, 8}); }), "k");
  EXPECT_EQ(named([](auto& o) { o.k = changed(o.k, {1, 7, 2, 16}); }), "k");
  EXPECT_EQ(named([](auto& o) { o.k = changed(o.k, {2, 7, 1, 16}); }), "v");
  EXPECT_EQ(named([](auto& o) { o.v = changed(o.v, {2, 6, 2, 16}); }), "v");
  EXPECT_EQ(named([](auto& o) { o.v = changed(o.v, {2, 7, 2, 8}); }), "out");
  EXPECT_EQ(named([](auto& o) { o.out = changed(o.out, {2, 5, 2, 16}); }), "out");
  EXPECT_EQ(named([](auto& o) { o.lse = changed(o.lse, {2, 5, 4}); }), "lse");
  EXPECT_EQ(named([](auto& o) { o.sinks = changed(o.sinks, {2}); }), "sinks");
  EXPECT_EQ(named([](auto& o) { o.first_k = changed(o.first_k, {1}); }), "first_k");
  EXPECT_EQ(named([](auto& o) { o.lengths_k = changed(o.lengths_k, {2, 1}); }), "lengths_k");
  EXPECT_EQ(named_of_lengths([](auto& o) { o.cu_q = changed(o.cu_q, {3, 1}); }), "cu_q");
  EXPECT_EQ(named_of_lengths([](auto& o) { o.cu_k = changed(o.cu_k, {2}); }), "cu_k");
  EXPECT_EQ(named_of_lengths([](auto& o) { o.lse = changed(o.lse, {9, 2}); }), "lse");
  EXPECT_EQ(named_of_lengths([](auto& o) { o.q = changed(o.q, {1, 9, 2, 16}); }), "q");
  EXPECT_EQ(named([](auto& o) { o.q = changed(o.q, {2, 5, 4, 16}, {0, 0, 0, 1}); }), "");
}

TEST_F(AttentionErrors, HeadsThatDoNotDivide) {
  AttentionCall odd(1, {.heads_q = 3, .heads_k = 2});
  EXPECT_EQ(refusal(odd.options(), stream).argument, "q");
}

TEST_F(AttentionErrors, Strides) {
  const Shape apart{640, 128, 32, 2};
  EXPECT_EQ(named([&](auto& o) { o.q = changed(o.q, {2, 5, 4, 16}, apart); }), "q");
  EXPECT_EQ(named([&](auto& o) { o.k = changed(o.k, {2, 7, 2, 16}, {448, 64, 32, 2}); }), "k");
  EXPECT_EQ(named([&](auto& o) { o.v = changed(o.v, {2, 7, 2, 16}, {448, 64, 32, 2}); }), "v");
  EXPECT_EQ(named([&](auto& o) { o.out = changed(o.out, {2, 5, 4, 16}, apart); }), "out");
  EXPECT_EQ(named([&](auto& o) { o.out = changed(o.out, {2, 5, 4, 16}, {0, 64, 16, 1}); }), "out");
  EXPECT_EQ(named([&](auto& o) { o.lse = changed(o.lse, {2, 4, 5}, {20, 1, 4}); }), "lse");
  EXPECT_EQ(named([&](auto& o) { o.sinks = changed(o.sinks, {4}, {2}); }), "sinks");
  EXPECT_EQ(named([&](auto& o) { o.first_k = changed(o.first_k, {2}, {2}); }), "first_k");
}

TEST_F(AttentionErrors, Memory) {
  EXPECT_EQ(named([](auto& o) { o.q = moved(o.q, 1); }), "q");
  EXPECT_EQ(named([](auto& o) { o.lse = moved(o.lse, 2); }), "lse");
  EXPECT_EQ(named([](auto& o) { o.k = at_place(o.k, {Memory::device, 0}); }), "k");
  EXPECT_EQ(named([](auto& o) { o.out = o.q; }), "out");
  EXPECT_EQ(named([](auto& o) { o.out = changed(o.v, {2, 5, 4, 16}); }), "out");
  EXPECT_EQ(named([](auto& o) {
              o.lse = TensorView(o.k.data(), DType::f32, Shape{2, 4, 5}, o.k.place());
            }),
            "lse");
}

TEST_F(AttentionErrors, Numbers) {
  EXPECT_EQ(named([](auto& o) { o.scale = NAN; }), "scale");
  EXPECT_EQ(named([](auto& o) { o.scale = INFINITY; }), "scale");
  EXPECT_EQ(named([](auto& o) { o.softcap = -1; }), "softcap");
  EXPECT_EQ(named([](auto& o) { o.softcap = INFINITY; }), "softcap");
  EXPECT_EQ(named([](auto& o) { o.softcap = NAN; }), "softcap");
  EXPECT_EQ(named([](auto& o) { o.window_left = -2; }), "window_left");
  EXPECT_EQ(named([](auto& o) { o.window_right = -2; }), "window_right");
  EXPECT_EQ(named([](auto& o) { o.max_q = -1; }), "max_q");
  EXPECT_EQ(named([](auto& o) { o.max_q = 4; }), "max_q") << "q has 5 rows in all sequences";
  EXPECT_EQ(named([](auto& o) { o.max_q = 5; }), "");
  EXPECT_EQ(named([](auto& o) { o.max_k = -1; }), "max_k");
  EXPECT_EQ(named([](auto& o) { o.kernel = static_cast<AttentionKernel>(77); }), "kernel");
}

// `best` would choose by the rows of all sequences.
TEST_F(AttentionErrors, BatchInvariantCallsWithoutTheMostQueries) {
  AttentionOptions options = lengths.options();
  options.batch_invariant = true;
  EXPECT_EQ(refusal(options, stream).argument, "max_q");
  EXPECT_THROW(attention_workspace_bytes(options), InvalidArgument);
  options.max_q = 9;
  EXPECT_EQ(refusal(options, stream).argument, "");
  options.max_q = 0;
  options.kernel = AttentionKernel::decode;
  EXPECT_EQ(refusal(options, stream).argument, "");
  EXPECT_EQ(named([](auto& o) { o.batch_invariant = true; }), "");
}

TEST_F(AttentionErrors, ACheckFindsLengthsThatAreWrong) {
  const auto with = [&](TensorView AttentionOptions::* member, std::vector<std::int32_t> values) {
    return named_of_lengths([&](AttentionOptions& o) {
      o.*member = TensorView(values.data(), DType::i32, {static_cast<std::int64_t>(values.size())});
    });
  };
  EXPECT_EQ(with(&AttentionOptions::cu_q, {0, 4, 10}), "cu_q");
  EXPECT_EQ(with(&AttentionOptions::cu_q, {-1, 4, 9}), "cu_q");
  EXPECT_EQ(with(&AttentionOptions::cu_q, {0, 5, 4}), "cu_q");
  EXPECT_EQ(with(&AttentionOptions::cu_k, {0, 9, 9}), "cu_k");
  EXPECT_EQ(with(&AttentionOptions::cu_k, {3, 1, 8}), "cu_k");
  EXPECT_EQ(with(&AttentionOptions::lengths_k, {4, 5}), "lengths_k");
  EXPECT_EQ(with(&AttentionOptions::lengths_k, {3, -1}), "lengths_k");
  EXPECT_EQ(with(&AttentionOptions::first_k, {0, 6}), "first_k");
  EXPECT_EQ(with(&AttentionOptions::first_k, {-1, 0}), "first_k");
  EXPECT_EQ(named_of_lengths([](auto& o) { o.max_q = 4; }), "cu_q");
  EXPECT_EQ(named_of_lengths([](auto& o) { o.max_k = 4; }), "cu_k");
  const auto named_with_most = [&](std::int64_t max_k) {
    return named([&](auto& o) {
      o.check = true;
      o.max_k = max_k;
    });
  };
  EXPECT_EQ(named_with_most(6), "lengths_k");
  EXPECT_EQ(named_with_most(7), "");
}

TEST_F(AttentionErrors, Pages) {
  // k and v (pages, 4, 2, 16), pages (2, 2)
  AttentionCall paged(1, {.heads_q = 4, .lengths_k = {7, 5}, .page_rows = 4});
  const auto spoiled = [&](const std::function<void(AttentionOptions&)>& spoil) {
    AttentionOptions bad = paged.options();
    bad.check = true;
    spoil(bad);
    return refusal(bad, stream);
  };
  EXPECT_EQ(spoiled([](auto&) {}).argument, "");
  EXPECT_EQ(spoiled([](auto& o) { o.pages = typed(o.pages, DType::f32); }).argument, "pages");
  EXPECT_EQ(spoiled([](auto& o) { o.pages = changed(o.pages, {4}); }).argument, "pages");
  EXPECT_EQ(spoiled([](auto& o) { o.pages = changed(o.pages, {1, 2}); }).argument, "pages");
  EXPECT_EQ(spoiled([](auto& o) { o.pages = changed(o.pages, {2, 2}, {5, 2}); }).argument, "pages");
  EXPECT_EQ(spoiled([](auto& o) { o.pages = changed(o.pages, {2, 2}, {-5, 1}); }).argument,
            "pages");
  EXPECT_EQ(spoiled([](auto& o) {
              o.pages = changed(o.pages, {2, std::int64_t{1} << 28}, {0, 1});
            }).argument,
            "pages");
  EXPECT_EQ(spoiled([](auto& o) { o.k = changed(o.k, {5, 0, 2, 16}); }).argument, "k");
  EXPECT_EQ(spoiled([](auto& o) { o.k = changed(o.k, {20, 2, 16}); }).argument, "k");
  EXPECT_EQ(spoiled([](auto& o) { o.v = changed(o.v, {4, 4, 2, 16}); }).argument, "v");
  EXPECT_EQ(spoiled([](auto& o) { o.v = changed(o.v, {5, 2, 2, 16}); }).argument, "v");
  std::vector<std::int32_t> ends{0, 3, 8};
  EXPECT_EQ(spoiled([&](auto& o) { o.cu_k = TensorView(ends.data(), DType::i32, {3}); }).argument,
            "cu_k");
  std::vector<std::int32_t> lengths_k{7, 9};
  EXPECT_EQ(spoiled([&](auto& o) {
              o.lengths_k = TensorView(lengths_k.data(), DType::i32, {2});
            }).argument,
            "lengths_k");
  std::vector<std::int32_t> table{0, 1, 2, 5};
  const auto with_table = [&](auto& o) { o.pages = TensorView(table.data(), DType::i32, {2, 2}); };
  EXPECT_EQ(spoiled(with_table).argument, "pages");
  EXPECT_EQ(spoiled(with_table).given, "5 at (1, 1)");
  table[3] = -1;
  EXPECT_EQ(spoiled(with_table).given, "-1 at (1, 1)");
  lengths_k = {7, 4};  // no key on this page
  EXPECT_EQ(spoiled([&](auto& o) {
              with_table(o);
              o.lengths_k = TensorView(lengths_k.data(), DType::i32, {2});
            }).argument,
            "");
}

TEST_F(AttentionErrors, WorkspaceBytesNeedAShape) {
  EXPECT_THROW(attention_workspace_bytes({}), InvalidArgument);
  AttentionOptions equal = call.options(), several = lengths.options();
  several.kernel = equal.kernel = AttentionKernel::portable;
  EXPECT_GT(attention_workspace_bytes(several), attention_workspace_bytes(equal));
  AttentionOptions decode = equal;
  decode.kernel = AttentionKernel::decode;
  EXPECT_GT(attention_workspace_bytes(decode), attention_workspace_bytes(equal));
  several.kernel = AttentionKernel::decode;
  AttentionOptions few = several;
  few.max_q = 1;
  EXPECT_LT(attention_workspace_bytes(few), attention_workspace_bytes(several));
  decode.max_q = 4;
  EXPECT_THROW(attention_workspace_bytes(decode), InvalidArgument);
  decode.max_q = 0;
  decode.q = changed(decode.q, {2, 5, 3, 16});
  EXPECT_THROW(attention_workspace_bytes(decode), InvalidArgument);
}

// A fake GPU, whose memory is the host's, and a call there.
class AttentionGpuErrors : public testing::Test {
 protected:
  explicit AttentionGpuErrors(int major = 9, int minor = 0)
      : machine(std::in_place, FakeOptions{.adjust = [major, minor](int, cuda::Properties& gpu) {
                  gpu.major = major;
                  gpu.minor = minor;
                  if (major != 9) gpu.shared_bytes = std::size_t{99} << 10;
                }}) {
    options = call.options([&](Strided& array) { return array.view(machine->gpu().place()); });
    options.pool = &*pool;
  }
  ~AttentionGpuErrors() override {
    pool.reset();
    stream.reset();
    EXPECT_TRUE(is_clean(machine->driver()));
  }

  std::string named(const std::function<void(AttentionOptions&)>& spoil) const {
    AttentionOptions bad = options;
    spoil(bad);
    return refusal(bad, *stream).argument;
  }
  std::string unsupported(AttentionKernel kernel) const {
    AttentionOptions bad = options;
    bad.kernel = kernel;
    try {
      attention(bad, *stream);
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "";
  }

  std::optional<FakeMachine> machine;
  std::optional<Stream> stream{machine->gpu()};
  std::optional<Pool> pool{machine->gpu()};
  AttentionCall call{1, {.heads_q = 4, .padding = 8}};
  AttentionOptions options;
};

TEST_F(AttentionGpuErrors, AlignmentOfRows) {
  EXPECT_EQ(named([](auto& o) { o.q = moved(o.q, 8); }), "q");
  EXPECT_EQ(named([](auto& o) { o.k = moved(o.k, 2); }), "k");
  EXPECT_EQ(named([](auto& o) { o.v = moved(o.v, 4); }), "v");
  EXPECT_EQ(named([](auto& o) { o.out = moved(o.out, 8); }), "out");
  EXPECT_EQ(named([](auto& o) { o.q = changed(o.q, {2, 5, 4, 16}, {520, 104, 20, 1}); }), "q");
  EXPECT_EQ(named([](auto& o) { o.k = changed(o.k, {2, 7, 2, 16}, {392, 52, 24, 1}); }), "k");
  EXPECT_EQ(named([](auto& o) { o.out = changed(o.out, {2, 5, 4, 16}, {522, 104, 24, 1}); }),
            "out");
}

TEST_F(AttentionGpuErrors, MemoryOfOtherDevices) {
  for (const Place place : {Place{}, Place{Memory::pinned}, Place{Memory::device, 1}}) {
    EXPECT_EQ(named([&](auto& o) { o.q = at_place(o.q, place); }), "q");
    EXPECT_EQ(named([&](auto& o) { o.lse = at_place(o.lse, place); }), "lse");
  }
  GuardedMemory here(attention_workspace_bytes(options));
  EXPECT_EQ(named([&](auto& o) { o.workspace = here.view(); }), "workspace");
  EXPECT_EQ(named([&](auto& o) {
              o.workspace = here.view();
              o.workspace.place = machine->gpu().place();
              o.workspace.bytes -= 1;
            }),
            "workspace");
  const Pool of_cpu(Device::cpu());
  EXPECT_EQ(named([&](auto& o) { o.pool = &of_cpu; }), "pool");
  EXPECT_EQ(named([](auto& o) { o.pool = nullptr; }), "workspace");
}

// The error names the argument that the kernel does not take, and its value.
TEST_F(AttentionGpuErrors, CallsThatSm90DoesNotTake) {
  const auto limit = [&](AttentionCase of,
                         const std::function<void(AttentionOptions&)>& spoil = {}) {
    AttentionCall made(1, of);
    AttentionOptions bad =
        made.options([&](Strided& array) { return array.view(machine->gpu().place()); });
    bad.pool = &*pool;
    bad.kernel = AttentionKernel::sm90;
    if (spoil) spoil(bad);
    try {
      attention(bad, *stream);
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "kernel");
      EXPECT_EQ(error.given(), "sm90");
      return error.expected();
    }
    return std::string();
  };
  const auto says = [](const std::string& text, const std::string& part) {
    return testing::AssertionResult(text.find(part) != std::string::npos) << text;
  };
  const AttentionCase fits{.dim = 64, .dim_v = 64};
  AttentionCase f32 = fits, dims{.dim = 64, .dim_v = 40}, negative = fits, small_pages = fits,
                padded_pages = fits;
  f32.type = DType::f32;
  negative.scale = -0.25F;
  small_pages.page_rows = 20;
  padded_pages.page_rows = 16;
  padded_pages.first_k = {1, 0};
  EXPECT_TRUE(says(limit(f32), "takes bf16 and f16, and q is f32"));
  EXPECT_TRUE(says(limit(dims), "those of q and v are 64 and 40"));
  EXPECT_TRUE(says(limit(negative), "scale is -0.25"));
  EXPECT_TRUE(says(limit(small_pages), "those of k have 20"));
  EXPECT_TRUE(says(limit(padded_pages), "first_k together with pages"));
  const auto strides = [&](TensorView AttentionOptions::* member) {
    return limit(fits, [&](AttentionOptions& o) {
      const auto shape = (o.*member).shape();
      o.*member = changed(o.*member, Shape(shape.begin(), shape.end()), {0, 0, 64, 1});
    });
  };
  EXPECT_TRUE(says(strides(&AttentionOptions::q), "rows and heads of q are 0, 0 and 64"));
  EXPECT_TRUE(says(strides(&AttentionOptions::k), "rows and heads of k are 0, 0 and 64"));
  EXPECT_TRUE(says(strides(&AttentionOptions::v), "rows and heads of v are 0, 0 and 64"));
}

TEST_F(AttentionGpuErrors, DecodeKernelsTakeEveryTypeButNotVeryManyQueries) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    AttentionCall made(1, {.heads_q = 4, .type = type});
    AttentionOptions each =
        made.options([&](Strided& array) { return array.view(machine->gpu().place()); });
    each.pool = &*pool;
    for (const AttentionKernel kernel :
         {AttentionKernel::best, AttentionKernel::decode, AttentionKernel::decode_portable}) {
      each.kernel = kernel;
      detail::AttentionWork work = attending::checked(each, machine->gpu());
      EXPECT_GT(work.decode_space.bytes, 0U);
      EXPECT_NO_THROW(attending::require_kernel(work, machine->gpu()));
      if (kernel == AttentionKernel::best) continue;
      work.sequences.max_q = 1 << 30;
      EXPECT_THROW(attending::require_kernel(work, machine->gpu()), InvalidArgument);
    }
  }
}

// Not by the number of rows of all sequences, which may be fewer.
TEST_F(AttentionGpuErrors, BatchInvariantCallsChooseByTheMostQueriesAlone) {
  AttentionCall few(1, {.q_rows = 9, .heads_q = 4, .cu_q = {0, 4, 9}, .padding = 8});
  AttentionOptions call_of_few =
      few.options([&](Strided& array) { return array.view(machine->gpu().place()); });
  call_of_few.pool = &*pool;
  for (const bool batch_invariant : {false, true}) {
    for (const std::int64_t max_q : {16, 17}) {
      call_of_few.batch_invariant = batch_invariant;
      call_of_few.max_q = max_q;
      EXPECT_EQ(attending::checked(call_of_few, machine->gpu()).decodes(),
                max_q == 16 || !batch_invariant);
    }
  }
}

TEST_F(AttentionGpuErrors, ACheckCannotBeCaptured) {
  options.check = true;
  machine->driver().set_capturing(stream->native(), true);
  EXPECT_THROW(attention(options, *stream), Unsupported);
  machine->driver().set_capturing(stream->native(), false);
}

TEST_F(AttentionGpuErrors, AnAllocationThatFailsLeavesNothing) {
  machine->driver().fail_call(1, cuda::memory_allocation, {"pool_alloc"});
  EXPECT_THROW(attention(options, *stream), OutOfMemory);
  EXPECT_EQ(pool->statistics().in_use, 0U);
}

#if !PENSTOCK_WITH_CUDA
TEST_F(AttentionGpuErrors, ACallThatFailsLeavesNothing) {
  EXPECT_THROW(attention(options, *stream), Unsupported);
  EXPECT_EQ(pool->statistics().allocations, 1U);
  EXPECT_EQ(pool->statistics().in_use, 0U);
}
#endif

class AttentionOldGpu : public AttentionGpuErrors {
 protected:
  AttentionOldGpu() : AttentionGpuErrors(7, 5) {}
};

TEST_F(AttentionOldGpu, NeedsComputeCapability80) {
  for (const AttentionKernel kernel : {AttentionKernel::best, AttentionKernel::portable}) {
    EXPECT_NE(unsupported(kernel).find("needs compute capability 8.0 or later, found 7.5"),
              std::string::npos);
  }
}

class AttentionOtherGpu : public AttentionGpuErrors {
 protected:
  AttentionOtherGpu() : AttentionGpuErrors(8, 9) {}
};

TEST_F(AttentionOtherGpu, TheWorkHasItsSharedMemory) {
  EXPECT_EQ(attending::checked(options, machine->gpu()).shared_bytes, std::size_t{99} << 10);
}

TEST_F(AttentionOtherGpu, Sm90NeedsComputeCapability90) {
  EXPECT_NE(unsupported(AttentionKernel::sm90).find("needs compute capability 9.0 for kernel sm90"),
            std::string::npos);
}

}  // namespace
}  // namespace ps::test
