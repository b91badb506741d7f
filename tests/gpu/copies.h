// Arrays on the host and their copies on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"
#include "support/strided.h"

namespace ps::test {

template <class T>
MemoryView bytes_of(std::vector<T>& elements) {
  return {reinterpret_cast<std::byte*>(elements.data()), elements.size() * sizeof(T), {}};
}

// Waits, so that what is sent need not stay.
template <class T>
void send(const MemoryView& to, std::size_t begin, std::vector<T> elements, const Stream& stream) {
  const MemoryView from = bytes_of(elements);
  copy(to.sub(begin, from.bytes), from, stream, {.allow_pageable = true});
  stream.synchronize();
}
template <class T>
std::vector<T> fetch(const MemoryView& from, std::size_t begin, std::size_t count,
                     const Stream& stream) {
  std::vector<T> elements(count);
  const MemoryView to = bytes_of(elements);
  copy(to, from.sub(begin, to.bytes), stream, {.allow_pageable = true});
  stream.synchronize();
  return elements;
}

// Copies of arrays on the GPU, with all that lies around their elements.
class Copies {
 public:
  Copies(const Device& gpu, const Stream& stream) : gpu_(gpu), stream_(stream) {}

  TensorView of(Strided& array) {
    Copy& made = copies_.emplace_back(array, DeviceBuffer(gpu_, array.bytes().size()));
    copy(made.there.view(), bytes_of(array.bytes()), stream_, {.allow_pageable = true});
    return array.view_in(made.there.view().as<std::uint8_t>(), made.there.view().place);
  }

  // Waits; all arrays are as the GPU left them.
  void fetch() {
    for (Copy& each : copies_) {
      copy(bytes_of(each.here.bytes()), each.there.view(), stream_, {.allow_pageable = true});
    }
    stream_.synchronize();
  }

 private:
  struct Copy {
    Strided& here;
    DeviceBuffer there;
  };
  Device gpu_;
  Stream stream_;
  std::list<Copy> copies_;
};

}  // namespace ps::test
