// transform where the GPU's memory is not the bottleneck: data that streams from the host and back,
// and the CPU. Each case is interleaved with passes of the engines that bound it, each alone: its
// floor is the best of them.
#pragma once

#include <cstddef>
#include <filesystem>

#include "penstock/host/device.h"
#include "support/results.h"

namespace bench {

struct TransformHostOptions {
  ps::Device device = ps::Device::best();
  std::size_t bytes = 0;         // each way, through memory
  std::size_t file_bytes = 0;    // each way, through files
  std::size_t cpu_bytes = 0;     // of input
  double host_copy = 0;          // bytes per second, the machine's ceiling; 0: unknown
  std::size_t device_bytes = 0;  // that streaming may take
  std::filesystem::path directory = ".";
  int turns = 5;
};

void streamed_cases(const TransformHostOptions& options, Results& results);
void cpu_cases(const TransformHostOptions& options, Results& results);

}  // namespace bench
