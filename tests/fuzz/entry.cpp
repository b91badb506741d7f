// What libFuzzer calls; the build says which target it is.
#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return ps::fuzz::PENSTOCK_FUZZ_TARGET(data, size);
}
