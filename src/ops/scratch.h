// Memory of a pool for the work that a stream is given while the object lives.
#pragma once

#include <cstddef>

#include "penstock/host/pool.h"

namespace ps::detail {

class Scratch {
 public:
  Scratch(const Pool& pool, std::size_t bytes, const Stream& stream)
      : pool_(pool), stream_(stream), memory_(pool.allocate(bytes, stream)) {}
  ~Scratch() { pool_.free(memory_, stream_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::byte* data() const { return memory_.data; }

 private:
  const Pool& pool_;
  const Stream& stream_;
  MemoryView memory_;
};

}  // namespace ps::detail
