// The experiments behind measure_limits(), one file each.
#pragma once

#include <cstddef>
#include <functional>
#include <map>

#include "measure/sampling.h"
#include "penstock/host/device.h"
#include "penstock/measure/limits.h"

namespace ps::detail {

// Called with the ceiling at hand before every repetition; throws Cancelled.
using CeilingTick = std::function<void(Ceiling, double)>;

using Rates = std::map<Ceiling, Rate>;

void measure_device(const Device& device, const LimitsOptions& options, const CeilingTick& tick,
                    Rates& rates);
void measure_host(const LimitsOptions& options, const CeilingTick& tick, Rates& rates);
void measure_disk(const LimitsOptions& options, const CeilingTick& tick, Rates& rates);

// `wanted`, or the share of `available` that a measurement may take; a whole number of MiB, and
// not so little that a figure would mean nothing.
std::size_t affordable(std::size_t wanted, std::size_t available);

// Host memory that can be had now, within the container's limit.
std::size_t available_host_bytes();

}  // namespace ps::detail
