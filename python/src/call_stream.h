// Where the work of a call goes.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "borrowed.h"
#include "device.h"
#include "penstock/base/error.h"

namespace ps::python {

// The stream that the caller gave, for work on these arrays; none where all of them are the CPU's,
// and the work is done at once.
template <class Arrays>
std::optional<Stream> stream_for(nb::handle stream, const Arrays& arrays) {
  for (const nb::handle array : arrays) {
    const std::optional<int> gpu = gpu_of(array);
    if (!gpu) continue;
    if (stream.is_none()) {
      throw InvalidArgument("stream", "the stream to use, as the memory is a GPU's", "None");
    }
    return stream_from(stream, Device::cuda(*gpu));
  }
  return std::nullopt;
}

inline const Stream* pointer_to(const std::optional<Stream>& stream) {
  return stream ? &*stream : nullptr;
}

}  // namespace ps::python
