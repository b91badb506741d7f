// Emulated kernels cannot be recorded into graphs: tests that do so are not run.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>

namespace ps::test {

class Recording {
 public:
  explicit Recording(cudaStream_t) {
    throw std::logic_error("emulated kernels cannot be recorded into a graph");
  }
  bool active() const { return false; }
  void replay(cudaStream_t) {}
};

}  // namespace ps::test
