// Runs calls of attention() on the GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/copies.h"
#include "gpu/gpu_test.h"
#include "support/attention_call.h"

namespace ps::test {

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
};

}  // namespace ps::test
