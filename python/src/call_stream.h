// Where the work of a call goes.
#pragma once

#include <nanobind/nanobind.h>

#include <bit>
#include <cstdint>
#include <optional>

#include "borrowed.h"
#include "device.h"
#include "interpreter.h"
#include "penstock/base/error.h"

namespace ps::python {

// The stream that the caller passed, for work on these arrays; none if all of them are in host
// memory and the work is done at once.
template <class Arrays>
std::optional<Stream> stream_for(nb::handle stream, const Arrays& arrays) {
  for (const nb::handle array : arrays) {
    const std::optional<int> gpu = gpu_of(array);
    if (!gpu) continue;
    if (stream.is_none()) {
      throw InvalidArgument("stream", "a stream, as the memory is on a GPU", "None");
    }
    return stream_from(stream, Device::cuda(*gpu));
  }
  return std::nullopt;
}

// The same, but None means the current stream of the arrays' library, as in torch's own functions.
struct CallStream {
  std::optional<Stream> stream;
  const dlpack::Exchange* library = nullptr;  // see BorrowOptions
};

template <class Arrays>
CallStream stream_or_current(nb::handle stream, const Arrays& arrays) {
  CallStream call;
  if (!stream.is_none()) {
    call.stream = stream_for(stream, arrays);
    return call;
  }
  for (const nb::handle array : arrays) {
    const dlpack::Exchange* const library = exchange_of(array);
    if (call.library == nullptr) call.library = library;
    const std::optional<int> gpu = gpu_of(array);
    if (!gpu) continue;
    if (library == nullptr) return {stream_for(stream, arrays), nullptr};
    void* current = nullptr;
    if (library->current_stream(dlpack::cuda, *gpu, &current) != 0) throw nb::python_error();
    if (current == nullptr) current = std::bit_cast<void*>(std::intptr_t{dlpack::legacy});
    return {borrow_native(Device::cuda(*gpu), current), library};
  }
  return call;
}

// A CPU stream for calls that wait for their work. It is reused, since a stream has a thread.
inline const Stream& waited_for() {
  thread_local const Stream stream(Device::cpu());
  return stream;
}

// Runs `work` on the stream without the GIL, or on the CPU and waits for it if there is no stream.
template <class Work>
void run_on(const std::optional<Stream>& stream, const Work& work) {
  without_lock([&] {
    if (stream) return work(*stream);
    work(waited_for());
    waited_for().synchronize();
  });
}

inline const Stream* pointer_to(const std::optional<Stream>& stream) {
  return stream ? &*stream : nullptr;
}

}  // namespace ps::python
