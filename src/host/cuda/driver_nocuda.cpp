#include "host/cuda/driver.h"

namespace ps::cuda {

std::shared_ptr<Driver> real_driver(std::string& why) {
  why = "this build of Penstock has no CUDA; build it with a CUDA toolkit of 12.8 or newer";
  return nullptr;
}

}  // namespace ps::cuda
