#include <fmt/format.h>

#include <map>
#include <string>

#include "attention/support/rung.h"
#include "attention/support/tensors.h"
#include "attention/support/verdicts.h"
#include "gemm/support/tensor_ceiling.h"
#include "support/interleaved.h"

namespace ladder::attention {
namespace {

constexpr Shape full_size{.heads = 32, .rows = 4096};
constexpr Shape quick_size{.heads = 8, .rows = 512};

std::vector<Kernels>& registered() {
  static std::vector<Kernels> all;
  return all;
}

const ladder::detail::JudgeRegistration judge("attention", verdicts);

// What all rungs share: the tensors of each type, and the ceiling.
class Ladder {
 public:
  explicit Ladder(ladder::Context& context)
      : stream_(context.device()), shape_(context.quick() ? quick_size : full_size) {
    // As many operations as full attention has.
    const gemm::Size size{128 * shape_.heads, shape_.rows, 2 * shape_.rows};
    ceiling_ = gemm::measure_tensor_ceiling(context, stream_, size);
  }

  const ps::Stream& stream() const { return stream_; }
  double ceiling() const { return ceiling_; }
  const Tensors& tensors(ps::DType type) {
    return tensors_.try_emplace(type, stream_, shape_, type).first->second;
  }

 private:
  ps::Stream stream_;
  Shape shape_;
  double ceiling_ = 0;  // 0: not measured
  std::map<ps::DType, Tensors> tensors_;
};

// The timeline inside the kernel, whose results are checked first.
void write_page(const ladder::Context& context, Ladder& all, const Kernels& kernels) {
  const Traced traced = kernels.traced();
  const Tensors& tensors = all.tensors(ps::DType::bf16);
  const Problem p = tensors.problem(false);
  const auto launch = [&](const ps::kit::TraceBuffer<true>& buffer) {
    tensors.poison();
    traced.run(p, all.stream(), buffer);
  };
  ladder::write_kernel_page(context.trace(),
                            {.name = "attention_" + traced.name,
                             .roles = traced.roles,
                             .room = traced.room,
                             .launch = launch},
                            all.stream());
  tensors.check(p);
}

}  // namespace

const std::vector<Kernels>& all_kernels() { return registered(); }

detail::Registration::Registration(const Kernels& kernels) { registered().push_back(kernels); }

std::vector<ladder::Row> measure(ladder::Context& context, const Kernels& kernels) {
  if (kernels.hopper && context.device().capabilities().compute_major != 9) {
    return ladder::not_here("needs compute capability 9.0");
  }
  auto& all = context.shared<Ladder>();
  std::vector<ladder::Row> rows;
  std::vector<ladder::Enqueue> work;
  for (const Variant& variant : kernels.variants()) {
    const Tensors& tensors = all.tensors(variant.type);
    const Problem p = tensors.problem(variant.causal);
    tensors.poison();
    variant.run(p, all.stream());
    const std::size_t checked = tensors.check(p);
    const char* const mask = variant.causal ? "causal" : "full";
    rows.push_back({.label = variant.label,
                    .work = fmt::format("{} {}", mask, p.rows),
                    .flops = tensors.shape().flops(variant.causal),
                    .note = fmt::format("{} elements checked", checked)});
    if (variant.use != nullptr) rows.back().use = variant.use();
    rows.back().number = context.profile(all.stream(), [&] { variant.run(p, all.stream()); });
    work.emplace_back([&all, p, run = variant.run](std::size_t) { run(p, all.stream()); });
  }
  const std::vector<double> seconds =
      ladder::interleaved_medians(all.stream(), work, {.stop = context.stop()});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ladder::Row& row = rows[i];
    row.seconds = seconds[i];
    const double speed = row.flops / row.seconds;
    row.note = fmt::format("{:.1f} TFLOP/s; {}", speed * 1e-12, row.note);
    if (all.ceiling() > 0) row.efficiency = speed / all.ceiling();
  }
  if (!context.trace().empty() && kernels.traced != nullptr) write_page(context, all, kernels);
  return rows;
}

}  // namespace ladder::attention
