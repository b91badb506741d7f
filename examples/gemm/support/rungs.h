// The rungs as functions, for whoever runs them: the ladder, the tests and the benchmark.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gemm/support/problem.h"
#include "support/context.h"
#include "support/kernel_page.h"
#include "support/kernel_use.h"
#include "support/rung.h"

namespace gemm {

// Enqueues the product and returns. m and n are at least 1. Throws what a launch throws.
using Run = void (*)(const Problem& p, cudaStream_t stream);

// The rung's kernel once more, with its trace switched on: what its parts do when.
struct Traced {
  std::string name = {};  // the page is called gemm_NAME
  std::vector<std::string> roles = {"load", "multiply", "store"};
  // Enqueues a product that the kernel itself can do.
  std::function<void(const Problem& p, cudaStream_t stream,
                     const ps::kit::TraceBuffer<true>& buffer)>
      run = {};
  ladder::TraceRoom room = {};
};

// Of the engine with two consumers, by number.
inline std::vector<std::string> engine_roles() {
  return {"loader", "consumer 1", "stores 1", "consumer 2", "stores 2"};
}

struct Product {
  std::string_view name;
  Run run = nullptr;
  bool hopper = false;  // needs compute capability 9.0: its file is called _sm90
  Traced (*traced)() = nullptr;
};

// Every rung linked into this program, in no order.
const std::vector<Product>& products();

// The rung's rows: each size of the ladder, checked, then timed. Where traces are asked for, it
// writes one, of 4096 x 4096 x 4096.
std::vector<ladder::Row> measure(ladder::Context& context, Run run, const ladder::KernelUse& use,
                                 const Traced& traced);

namespace detail {
struct Registration {
  Registration(std::string_view path, std::string_view name, Run run, Traced (*traced)());
};
}  // namespace detail

}  // namespace gemm
