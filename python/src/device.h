// Devices and streams.
#pragma once

#include <nanobind/nanobind.h>

#include "penstock/host/device.h"
#include "penstock/host/stream.h"

namespace ps::python {

namespace nb = nanobind;

// From what Python callers pass for a device: a Device, its name, or None for the best.
Device device_from(nb::handle object);

// From what they pass for a stream on `device`: a Stream, or the address of one of CUDA's (1 and 2
// are the legacy and the per-thread default), or an object with that in `cuda_stream`, as torch's.
Stream stream_from(nb::handle object, const Device& device);

void bind_device(nb::module_& m);

}  // namespace ps::python
