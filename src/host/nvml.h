// NVIDIA's management library, opened at run time where it is found.
#pragma once

#include <string>

namespace ps::detail {

inline constexpr const char* nvml_name = "libnvidia-ml.so.1";

// The NVIDIA driver's version as the driver tells it ("580.65.06"), or empty.
std::string nvidia_driver_version();

}  // namespace ps::detail
