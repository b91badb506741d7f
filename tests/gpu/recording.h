// The work that a stream is given, recorded into a graph and replayed.
#pragma once

#include <cuda_runtime_api.h>

namespace ps::test {

class Recording {
 public:
  // Begins a capture in the strictest mode.
  explicit Recording(cudaStream_t stream);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Whether the capture still goes on, with nothing wrong with it.
  bool active() const;
  // Ends the capture; what CUDA says of it.
  cudaError_t end();
  // Runs what was recorded, in `stream`. Ends the capture before the first time.
  void replay(cudaStream_t stream);

 private:
  cudaStream_t stream_;
  bool ended_ = false;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t runnable_ = nullptr;
};

}  // namespace ps::test
