// What users wrote, checked once, as work.
#pragma once

#include "ops/resample/work.h"
#include "penstock/host/device.h"

namespace ps::resampling {

// Throw InvalidArgument, which names the argument.
detail::ResampleWork checked(const ResampleOptions& options, const Device& device);
detail::ResampleWork checked(const ResampleGradientOptions& options, const Device& device);

// Throws what a check found, if it did. `readable`: whether times may be read for the message, here
// and now. `of_sensors`: whether the arguments are those of sensors, or bare ones.
void throw_fault(const detail::ResampleFault& fault, const detail::ResampleWork& work,
                 bool readable, bool of_sensors);

}  // namespace ps::resampling
