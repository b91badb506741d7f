// Devices and streams.
#pragma once

#include <nanobind/nanobind.h>

#include "penstock/host/device.h"
#include "penstock/host/stream.h"

namespace ps::python {

namespace nb = nanobind;

// A device given in Python as a Device, its name, or None for the best.
Device device_from(nb::handle object);

// A stream on `device` given in Python as a Stream, as the address of a CUDA stream (1 and 2 are
// the legacy and the per-thread default stream), or as an object with that in `cuda_stream`, as in
// torch.
Stream stream_from(nb::handle object, const Device& device);

void bind_device(nb::module_& m);

}  // namespace ps::python
