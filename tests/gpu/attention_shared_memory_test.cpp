// attention() with the kernels that run on GPUs with little shared memory, on a GPU that may have
// more.
#include <cstdint>
#include <vector>

#include "gpu/attention_gpu.h"
#include "ops/attention/arguments.h"
#include "ops/attention/work.h"
#include "ops/launch.h"
#include "penstock/ops/attention.h"

namespace ps::test {
namespace {

class AttentionSharedMemoryGpu : public AttentionGpuTest {
 protected:
  // Runs the portable kernel as on a GPU whose blocks of threads have this much shared memory.
  void expect_right(std::uint32_t seed, const AttentionCase& of, std::size_t shared_bytes) const {
    const Stream stream(gpu);
    AttentionCall call(seed, of);
    Copies copies(gpu, stream);
    AttentionOptions options = call.options([&](Strided& array) { return copies.of(array); });
    options.kernel = AttentionKernel::portable;
    const DeviceBuffer workspace(gpu, attention_workspace_bytes(options));
    options.workspace = workspace.view();
    detail::AttentionWork work = attending::checked(options, gpu);
    ASSERT_GE(work.shared_bytes, least);
    if (work.sequences.q_rows == 0) return;
    work.shared_bytes = shared_bytes;
    detail::attention_gpu(work, stream);
    copies.fetch();
    ASSERT_EQ(call.wrong(), "") << "seed " << seed;
  }

  // Compute capability 8.6, 8.9 and 12.0.
  static constexpr std::size_t least = std::size_t{99} * 1024;
};

TEST_F(AttentionSharedMemoryGpu, WideHeadsNeedNoMoreThanEveryGpuHas) {
  const std::vector<DType> types{DType::bf16, DType::f16};
  const std::vector<AttentionDims> dims{{256, 256}, {208, 256}, {40, 136}, {200, 8}};
  for (std::uint32_t seed = 1; seed <= 16; ++seed) {
    const AttentionCase of = seed % 3 == 0
                                 ? random_paged_case(seed, 150, dims, types, {1, 8, 12, 64})
                                 : random_attention_case(seed, 150, dims, types);
    for (const std::size_t bytes : {least, 2 * least}) {
      expect_right(seed, of, bytes);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace ps::test
