// The devices of this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/backend.h"
#include "host/cuda/driver.h"

namespace ps::detail {

struct Runtime {
  std::shared_ptr<Backend> cpu;
  std::vector<std::shared_ptr<Backend>> gpus;
  std::string why_no_gpu;  // empty when there is one
  std::shared_ptr<cuda::Driver> driver;
};

// Made on first use and never destroyed: threads of the library may outlive main().
std::shared_ptr<const Runtime> runtime();

// Puts another driver in place (tests), or the real one again when null. Devices, streams and
// buffers made before keep the driver they were made with.
void replace_driver(std::shared_ptr<cuda::Driver> driver);

}  // namespace ps::detail
