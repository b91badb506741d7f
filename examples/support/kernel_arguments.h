// What ladders of kernels ask of the device and of the views that a kernel is given.
#pragma once

#include <string>
#include <string_view>

#include "penstock/base/view.h"
#include "penstock/host/device.h"

namespace ladder {

// Why `device` cannot run a kernel that is for compute capability 9.0 alone (`hopper`) or from 8.0
// on; empty where it can.
std::string why_no_kernel(const ps::Device& device, bool hopper);

// Contiguous, aligned elements of this type in the device's memory, or InvalidArgument.
void check_view(std::string_view argument, const ps::TensorView& view, ps::DType type,
                const ps::Device& device);

// Throws InvalidArgument where the kernel would write to what it reads.
void check_apart(std::string_view written, const ps::TensorView& out, std::string_view read,
                 const ps::TensorView& in);

}  // namespace ladder
