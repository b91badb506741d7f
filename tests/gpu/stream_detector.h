// Sees every call into the CUDA driver while it lives, and keeps those that a library must not
// make: work on a stream that it was not given, and calls that wait for more than they should.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <vector>

namespace ps::test {

struct DetectorOptions {
  std::vector<cudaStream_t> streams;  // that may be used: as given to the library, 0 excluded
  bool may_wait = false;  // the thread that made the detector may wait for those streams and events
};

// It uses the callbacks of CUPTI, which is looked for at run time. One at a time.
class StreamDetector {
 public:
  // Why there can be no detector here; empty when there can.
  static std::string why_not();

  explicit StreamDetector(const DetectorOptions& options);
  ~StreamDetector();
  StreamDetector(const StreamDetector&) = delete;
  StreamDetector& operator=(const StreamDetector&) = delete;

  // What was wrong so far, one line a call.
  std::vector<std::string> violations() const;
  // The calls that took a stream so far, right or wrong: a detector that sees nothing is broken.
  std::size_t seen() const;
};

}  // namespace ps::test
