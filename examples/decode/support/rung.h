// What a rung of the decode ladder includes. A rung lists its variants, one per row and work:
//
//   std::vector<Variant> variants() { return {{.label = "bf16", .run = run, .use = use}}; }
//   PENSTOCK_DECODE_RUNG("name", "One sentence.", machine, variants);
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "decode/support/problem.h"
#include "penstock/host/stream.h"
#include "support/context.h"
#include "support/kernel_rung.h"
#include "support/kernel_use.h"

namespace ladder::decode {

struct Variant {
  std::string label = {};
  bool paged = false;  // reads keys and values in pages; else only without pages
  // Enqueues the attention and returns. Throws what a launch throws.
  void (*run)(const Problem& p, const ps::Stream& stream) = nullptr;
  ladder::KernelUse (*use)() = nullptr;  // null where the kernel lies in the library
};

struct Kernels {
  std::string_view name;  // of the rung
  std::vector<Variant> (*variants)() = nullptr;
};

// Those of every rung linked into this program, in no order.
const std::vector<Kernels>& all_kernels();

// The rung's rows: each variant on each work, checked, then timed next to a plain read.
std::vector<ladder::Row> measure(ladder::Context& context, const Kernels& kernels);

namespace detail {
struct Registration {
  explicit Registration(const Kernels& kernels);
};
}  // namespace detail

}  // namespace ladder::decode

#define PENSTOCK_DECODE_RUNG(title, text, instructions, variants)                        \
  static constexpr ladder::decode::Kernels kernels_of_rung{title, variants};             \
  static const ladder::decode::detail::Registration registered_kernels(kernels_of_rung); \
  static std::vector<ladder::Row> measure_rung(ladder::Context& context) {               \
    return ladder::decode::measure(context, kernels_of_rung);                            \
  }                                                                                      \
  PENSTOCK_KERNEL_RUNG(title, text, instructions, measure_rung)
