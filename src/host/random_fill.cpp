#include "host/random_fill.h"

#include <algorithm>
#include <cstring>

#include "host/drain.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"

namespace ps::detail {

void fill_random(std::span<std::byte> bytes, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + at, &state, std::min(sizeof(state), bytes.size() - at));
  }
}

void scatter_random(MemoryView target, const Stream& stream) {
  const PinnedBuffer random(stream.device(), 4 * MiB);
  const Drain drain(stream.device());
  fill_random({random.view().data, random.bytes()}, 1);
  for (std::size_t at = 0; at < target.bytes; at += random.bytes()) {
    const std::size_t part = std::min(random.bytes(), target.bytes - at);
    copy(target.sub(at, part), random.view().sub(0, part), stream);
  }
  stream.synchronize();
}

}  // namespace ps::detail
