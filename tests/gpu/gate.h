// Holds a stream by the caller's own means, so that a test decides what has not happened yet.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

namespace ps::test {

// Work enqueued on the stream after this waits until the gate opens. While one is closed, nothing
// may wait for the whole device: make and warm up what a test needs before. One gate at a time:
// CUDA runs host functions of all streams one after the other.
class Gate {
 public:
  explicit Gate(cudaStream_t stream);
  // Opens it. The test fails when the gate had to open by itself, after long enough: something
  // waited that should not have.
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open();
  bool is_open() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ps::test
