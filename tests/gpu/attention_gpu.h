// Runs calls of attention() on the GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/copies.h"
#include "gpu/gpu_test.h"
#include "gpu/recording.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/cuda.h"
#include "support/attention_random.h"

namespace ps::test {

inline std::string kernel_name(const testing::TestParamInfo<AttentionKernel>& kernel) {
  switch (kernel.param) {
    case AttentionKernel::sm90:
      return "Sm90";
    case AttentionKernel::decode:
      return "Decode";
    default:
      return "Portable";
  }
}

class AttentionGpuTest : public GpuTest {
 protected:
  static constexpr std::size_t margin = 4096;  // bytes of poison around the workspace

  bool is_hopper() const {
    const Capabilities& has = gpu.capabilities();
    return has.compute_major == 9 && has.compute_minor == 0;
  }

  struct Run {
    AttentionKernel kernel = AttentionKernel::best;
    bool compare = true;
    bool batch_invariant = false;
  };

  // Runs the call in poisoned memory of the GPU. Results are as the GPU left them. Returns what is
  // wrong with them.
  std::string run(AttentionCall& call, const Run& how) const {
    const Stream stream(gpu);
    Copies copies(gpu, stream);
    AttentionOptions options = call.options([&](Strided& array) { return copies.of(array); });
    options.kernel = how.kernel;
    options.batch_invariant = how.batch_invariant;
    const std::size_t bytes = attention_workspace_bytes(options);
    const DeviceBuffer memory(gpu, bytes + 2 * margin);
    fill(memory.view(), poison, stream);
    options.workspace = memory.view().sub(margin, bytes);
    attention(options, stream);
    copies.fetch();
    for (const std::size_t begin : {std::size_t{0}, margin + bytes}) {
      if (!all_are(fetch<std::uint8_t>(memory.view(), begin, margin, stream), poison)) {
        return "wrote around the workspace";
      }
    }
    return how.compare ? call.wrong() : "";
  }

  void expect_right(const std::vector<AttentionKernel>& kernels, std::uint32_t seed,
                    const AttentionCase& of) const {
    for (const AttentionKernel kernel : kernels) {
      AttentionCall call(seed, of);
      ASSERT_EQ(run(call, {.kernel = kernel}), "")
          << "kernel " << static_cast<int>(kernel) << ", seed " << seed;
    }
  }

  // With `under_load` copies on another stream keep the memory busy.
  void expect_same_bits(const AttentionCase& of, const Run& how, int rounds,
                        bool under_load = false) const {
    const Stream stream(gpu), other(gpu);
    const std::size_t load = under_load ? 256 * MiB : 1;
    const DeviceBuffer from(gpu, load), to(gpu, load);
    fill(from.view(), 0, other);
    AttentionCall call(3, of);
    Copies copies(gpu, stream);
    AttentionOptions options = call.options([&](Strided& array) { return copies.of(array); });
    options.kernel = how.kernel;
    options.batch_invariant = how.batch_invariant;
    const DeviceBuffer workspace(gpu, std::max<std::size_t>(1, attention_workspace_bytes(options)));
    options.workspace = workspace.view();
    std::vector<std::uint8_t> first_out, first_lse;
    for (int round = 0; round < rounds; ++round) {
      for (const MemoryView& each :
           {options.out.memory(), options.lse.memory(), workspace.view()}) {
        fill(each, poison, stream);
      }
      for (int i = 0; under_load && i < 8; ++i) copy(to.view(), from.view(), other);
      attention(options, stream);
      const auto fetched = [&](const MemoryView& memory) {
        return fetch<std::uint8_t>(memory, 0, memory.bytes, stream);
      };
      if (round == 0) {
        first_out = fetched(options.out.memory());
        first_lse = fetched(options.lse.memory());
        copies.fetch();
        ASSERT_EQ(call.wrong(), "");
      }
      ASSERT_TRUE(fetched(options.out.memory()) == first_out) << "round " << round;
      ASSERT_TRUE(fetched(options.lse.memory()) == first_lse) << "round " << round;
    }
    other.synchronize();
  }

  // Also with lengths that are wrong, of two sequences.
  void expect_inside(const AttentionCase& of, const Run& how) const {
    const std::vector<std::vector<std::int32_t>> wrong{
        {0, 1000, 5}, {-7, 3, 2000000000}, {5, 0, 30}, {900, 900, 900}};
    for (const auto& cumulative : wrong) {
      AttentionCall call(1, of);
      call.spoil_lengths(cumulative, {-4, 77000});
      ASSERT_EQ(run(call, {how.kernel, false, how.batch_invariant}), "");
      EXPECT_TRUE(call.out().surroundings_untouched());
      EXPECT_TRUE(call.lse().surroundings_untouched());
    }
  }

  // With lengths of padding that are wrong, of two sequences, and wrong pages if there are any.
  void expect_inside_padding(const AttentionCase& of, const Run& how) const {
    const std::vector<std::vector<std::int32_t>> wrong{
        {-5, 2000000000}, {-2000000000, 77}, {281, 280}, {2000000000, -1}};
    for (const auto& first : wrong) {
      for (const auto& lengths : wrong) {
        AttentionCall call(1, of);
        call.spoil_padding(first, lengths);
        ASSERT_EQ(run(call, {how.kernel, false, how.batch_invariant}), "");
        EXPECT_TRUE(call.out().surroundings_untouched());
        EXPECT_TRUE(call.lse().surroundings_untouched());
      }
    }
  }

  void expect_right_in_a_graph(const AttentionCase& of, AttentionKernel kernel) const {
    const Stream stream(gpu);
    AttentionCall call(1, of);
    Copies copies(gpu, stream);
    AttentionOptions options = call.options([&](Strided& array) { return copies.of(array); });
    options.kernel = kernel;
    const DeviceBuffer workspace(gpu, attention_workspace_bytes(options));
    options.workspace = workspace.view();
    stream.synchronize();
    Recording recording(cuda_stream(stream));
    attention(options, stream);
    EXPECT_TRUE(recording.active());
    recording.replay(cuda_stream(stream));
    recording.replay(cuda_stream(stream));
    copies.fetch();
    EXPECT_EQ(call.wrong(), "");
  }

  // The argument for which a check refuses the call.
  std::string refused(AttentionCall& call) const {
    const Stream stream(gpu);
    const Pool pool(gpu);
    Copies copies(gpu, stream);
    AttentionOptions options = call.options([&](Strided& array) { return copies.of(array); });
    options.pool = &pool;
    options.check = true;
    try {
      attention(options, stream);
    } catch (const InvalidArgument& error) {
      return error.argument();
    }
    return "";
  }
};

}  // namespace ps::test
