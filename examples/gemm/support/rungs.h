// The rungs as functions, for whoever runs them: the ladder, the tests and the benchmark.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>
#include <vector>

#include "gemm/support/problem.h"
#include "support/context.h"
#include "support/kernel_use.h"
#include "support/rung.h"

namespace gemm {

// Enqueues the product and returns. m and n are at least 1. Throws what a launch throws.
using Run = void (*)(const Problem& p, cudaStream_t stream);

struct Product {
  std::string_view name;
  Run run = nullptr;
  bool hopper = false;  // needs compute capability 9.0: its file is called _sm90
};

// Every rung linked into this program, in no order.
const std::vector<Product>& products();

// The rung's rows: each size of the ladder, checked, then timed.
std::vector<ladder::Row> measure(ladder::Context& context, Run run, const ladder::KernelUse& use);

namespace detail {
struct Registration {
  Registration(std::string_view path, std::string_view name, Run run);
};
}  // namespace detail

}  // namespace gemm
