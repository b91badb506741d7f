#include "gpu/recording.h"

#include <gtest/gtest.h>

namespace ps::test {

Recording::Recording(cudaStream_t stream) : stream_(stream) {
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
}

Recording::~Recording() {
  if (!ended_) end();
  if (runnable_ != nullptr) {
    EXPECT_EQ(cudaGraphExecDestroy(runnable_), cudaSuccess);
  }
  if (graph_ != nullptr) {
    EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
  }
}

bool Recording::active() const {
  cudaStreamCaptureStatus status{};
  return cudaStreamIsCapturing(stream_, &status) == cudaSuccess &&
         status == cudaStreamCaptureStatusActive;
}

cudaError_t Recording::end() {
  ended_ = true;
  const cudaError_t status = cudaStreamEndCapture(stream_, &graph_);
  if (status != cudaSuccess) cudaGetLastError();  // the test asked for it
  return status;
}

void Recording::replay(cudaStream_t stream) {
  if (!ended_) {
    ASSERT_EQ(end(), cudaSuccess);
  }
  if (runnable_ == nullptr) {
    ASSERT_EQ(cudaGraphInstantiate(&runnable_, graph_, 0), cudaSuccess);
  }
  ASSERT_EQ(cudaGraphLaunch(runnable_, stream), cudaSuccess);
}

}  // namespace ps::test
