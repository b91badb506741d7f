// What a rung of the attention ladder includes. A rung lists its variants, one per row:
//
//   std::vector<Variant> variants() { return {{.label = "bf16", .run = run<__nv_bfloat16>, ...}}; }
//   PENSTOCK_ATTENTION_RUNG("name", "One sentence.", machine, variants);
//
// A fifth argument, a function that returns a Traced, lets the rung write the timeline inside its
// kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "attention/support/problem.h"
#include "penstock/base/dtype.h"
#include "penstock/host/stream.h"
#include "support/context.h"
#include "support/kernel_page.h"
#include "support/kernel_rung.h"
#include "support/kernel_use.h"

namespace ladder::attention {

// Enqueues the attention and returns. Throws what a launch throws.
using Run = void (*)(const Problem& p, const ps::Stream& stream);

struct Variant {
  std::string label = {};
  ps::DType type = ps::DType::bf16;
  bool causal = false;  // what it computes; no kernel does both
  Run run = nullptr;
  ladder::KernelUse (*use)() = nullptr;  // null where the kernel lies in the library
};

// The rung's kernel once more, with its trace switched on: what its parts do when.
struct Traced {
  std::string name = {};  // the page is called attention_NAME
  std::vector<std::string> roles = {};
  // Enqueues full attention of bf16.
  void (*run)(const Problem& p, const ps::Stream& stream,
              const ps::kit::TraceBuffer<true>& buffer) = nullptr;
  ladder::TraceRoom room = {};
};

struct Kernels {
  std::string_view name;  // of the rung
  bool hopper = false;    // needs compute capability 9.0: its file is called _sm90
  std::vector<Variant> (*variants)() = nullptr;
  Traced (*traced)() = nullptr;  // null where there is none
};

// Those of every rung linked into this program, in no order.
const std::vector<Kernels>& all_kernels();

// The rung's rows: each variant, checked, then timed. Where traces are asked for and the rung has
// one, it writes it.
std::vector<ladder::Row> measure(ladder::Context& context, const Kernels& kernels);

namespace detail {
struct Registration {
  explicit Registration(const Kernels& kernels);
};
}  // namespace detail

}  // namespace ladder::attention

#define PENSTOCK_ATTENTION_RUNG(title, text, instructions, ...)                                \
  static constexpr ladder::attention::Kernels kernels_of_rung{                                 \
      title, std::string_view(__FILE__).find("_sm90") != std::string_view::npos, __VA_ARGS__}; \
  static const ladder::attention::detail::Registration registered_kernels(kernels_of_rung);    \
  static std::vector<ladder::Row> measure_rung(ladder::Context& context) {                     \
    return ladder::attention::measure(context, kernels_of_rung);                               \
  }                                                                                            \
  PENSTOCK_KERNEL_RUNG(title, text, instructions, measure_rung)
