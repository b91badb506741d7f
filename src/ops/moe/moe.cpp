#include "penstock/ops/moe.h"

#include <string>
#include <string_view>

#include "host/backend.h"
#include "ops/arguments.h"
#include "ops/moe/arguments.h"
#include "ops/moe/work.h"
#include "ops/scratch.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"

namespace ps {
namespace mixture {
namespace {

using detail::MoeWork;
using detail::on_cpu;

// Whether there are no biases, the activation is SwiGLU and the rows of all weights are contiguous.
bool plain(const MoeWork& work) {
  return work.held.gate_up_bias == nullptr && work.held.down_bias == nullptr &&
         work.gate.activation == MoeActivation::swiglu && !work.held.by_column() &&
         !work.shared.by_column();
}

// That the kernel `decode` takes the work. `best` never runs it for other work.
void require_decode(const MoeWork& work) {
  const auto refuse = [](const char* expected) {
    throw InvalidArgument("kernel", expected, "decode");
  };
  if (!work.decodes(work.held) || !work.decodes(work.shared)) {
    refuse("best, large or portable, for concatenated gate and up with contiguous columns");
  }
  if (work.batch_invariant) refuse("best, large or portable, with batch_invariant");
  // It counts chunks of 16 bytes of h in 32 bits.
  constexpr std::int64_t most = std::int64_t{1} << 36;
  const auto element = static_cast<std::int64_t>(size_of(work.type));
  if (work.rows() * work.width * element >= most ||
      work.tokens * work.shared_width * element >= most) {
    refuse(
        "best, large or portable, for inputs of the down-projection (T K n elements) of 64 GiB "
        "or more");
  }
}

// That the kernel named runs on the device and takes the work.
void require_kernel(const MoeOptions& options, const MoeWork& work, const Device& device) {
  detail::require_compute(device, "moe");
  if (options.kernel == MoeKernel::best || options.kernel == MoeKernel::portable) return;
  if (device.kind() == DeviceKind::cpu) return;
  const std::string_view name = options.kernel == MoeKernel::large    ? "large"
                                : options.kernel == MoeKernel::decode ? "decode"
                                                                      : "sequential";
  detail::require_compute(device, "moe",
                          {.major = 9,
                           .minor = 0,
                           .or_later = false,
                           .kernel = name,
                           .instead = "use the kernel portable"});
  if (options.x.dtype() == DType::f32) {
    throw InvalidArgument("kernel", "best or portable, for x of f32", std::string(name));
  }
  if (options.kernel == MoeKernel::decode) require_decode(work);
  if (options.kernel == MoeKernel::sequential && !plain(work)) {
    throw InvalidArgument(
        "kernel",
        "another kernel, for biases, activations but swiglu and weights with contiguous columns",
        std::string(name));
  }
}

// The work of a call that has something to do and may run here. Waits for the ids if they are to
// be checked.
MoeWork ready(const MoeOptions& options, Workspace workspace, bool check, const Stream& stream) {
  MoeWork work = checked(options, workspace, stream.device());
  if (work.tokens == 0) return work;
  require_kernel(options, work, stream.device());
  if (!check) return work;
  stream.impl().refuse_capture("moe with `check`, which waits for the ids,");
  if (on_cpu(stream)) {
    stream.synchronize();
    check_ids(work, work.ids);
  } else {
    const PinnedBuffer ids(stream.device(), options.ids.bytes());
    copy(ids.view(), options.ids.memory(), stream);
    stream.synchronize();
    check_ids(work, ids.view().data);
  }
  return work;
}

void plan(const MoeWork& work, bool and_experts, const Stream& stream) {
  if (on_cpu(stream)) return detail::moe_plan_cpu(work, stream);
  detail::moe_plan_gpu(work, and_experts, stream);
}

void compute(const MoeWork& work, bool planned, const Stream& stream) {
  if (on_cpu(stream)) return detail::moe_experts_cpu(work, stream);
  detail::moe_experts_gpu(work, planned, stream);
}

void combine(const MoeWork& work, const Stream& stream) {
  if (work.shared_width > 0) {
    const MoeWork shared = work.shared_work();
    plan(shared, true, stream);
    compute(shared, true, stream);
  }
  if (on_cpu(stream)) return detail::moe_combine_cpu(work, stream);
  detail::moe_combine_gpu(work, stream);
}

void run(const MoeWork& work, const Stream& stream) {
  plan(work, true, stream);
  compute(work, true, stream);
  combine(work, stream);
}

}  // namespace
}  // namespace mixture

using mixture::Workspace;

std::size_t moe_workspace_bytes(const MoeOptions& options) {
  return mixture::sized(options).bytes();
}

void moe(const MoeOptions& options, const Stream& stream) {
  detail::MoeWork work = mixture::ready(options, Workspace::given_or_pool, options.check, stream);
  if (work.tokens == 0) return;
  if (work.memory != nullptr) return mixture::run(work, stream);
  const detail::Scratch scratch(*options.pool, work.bytes(), stream);
  work.memory = scratch.data();
  mixture::run(work, stream);
}

void moe_plan(const MoeOptions& options, const Stream& stream) {
  const detail::MoeWork work = mixture::ready(options, Workspace::given, options.check, stream);
  if (work.tokens == 0) return;
  mixture::plan(work, false, stream);
}

void moe_experts(const MoeOptions& options, const Stream& stream) {
  const detail::MoeWork work = mixture::ready(options, Workspace::given, false, stream);
  if (work.tokens == 0) return;
  mixture::compute(work, false, stream);
}

void moe_combine(const MoeOptions& options, const Stream& stream) {
  const detail::MoeWork work = mixture::ready(options, Workspace::given, false, stream);
  if (work.tokens == 0) return;
  mixture::combine(work, stream);
}

}  // namespace ps
