// A cache that grows with every step, as a KV cache does. Allocating anew and copying moves every
// byte again and again, and holds old and new at once. A GrowableBuffer maps pages behind addresses
// it reserved once: nothing is copied, and the address stays.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/growable.h"
#include "penstock/host/stream.h"
#include "support/context.h"

namespace {

struct Steps {
  std::size_t first, last, row_bytes;
  std::size_t total() const { return last * row_bytes; }
};

// Step by step, makes room with `grow(bytes)`, which returns the whole cache, and appends a row.
template <class Grow>
ps::MemoryView fill_cache(const Steps& steps, ps::MemoryView rows, const ps::Stream& stream,
                          const Grow& grow) {
  ps::MemoryView cache = grow(steps.first * steps.row_bytes);
  ps::copy(cache, rows.sub(0, cache.bytes), stream);
  for (std::size_t step = steps.first; step < steps.last; ++step) {
    cache = grow((step + 1) * steps.row_bytes);
    const std::size_t at = step * steps.row_bytes;
    ps::copy(cache.sub(at, steps.row_bytes), rows.sub(at, steps.row_bytes), stream);
  }
  return cache;
}

// Allocate, copy, free.
class Reallocated {
 public:
  Reallocated(ps::Device device, ps::Stream stream, bool doubling)
      : device_(std::move(device)), stream_(std::move(stream)), doubling_(doubling) {}

  ps::MemoryView grow(std::size_t bytes) {
    if (bytes > buffer_.bytes()) {
      const std::size_t wanted = doubling_ ? std::max(bytes, 2 * buffer_.bytes()) : bytes;
      ps::DeviceBuffer larger(device_, wanted);
      if (used_ > 0) {
        ps::copy(larger.view().sub(0, used_), buffer_.view().sub(0, used_), stream_);
        stream_.synchronize();  // the old one goes away
      }
      peak_ = std::max(peak_, buffer_.bytes() + larger.bytes());
      buffer_ = std::move(larger);
    }
    used_ = bytes;
    return buffer_.view().sub(0, used_);
  }

  std::size_t peak() const { return peak_; }

 private:
  ps::Device device_;
  ps::Stream stream_;
  bool doubling_;
  ps::DeviceBuffer buffer_;
  std::size_t used_ = 0, peak_ = 0;
};

std::vector<ladder::Row> run(ladder::Context& context) {
  Steps steps{.first = 64, .last = context.on_gpu() ? 4096U : 1024U, .row_bytes = 0};
  if (context.quick()) steps.last /= 4;
  steps.row_bytes = context.bytes() / 16 / steps.last / 64 * 64;
  const ps::Device& device = context.device();
  const ps::Stream stream(device);
  ps::copy(context.data().result(), context.data().input(), stream);
  const ps::MemoryView rows = context.data().result();

  const auto check = [&](ps::MemoryView cache) {
    const ps::MemoryView home = context.data().output().sub(0, cache.bytes);
    std::memset(home.data, 0xFF, home.bytes);
    ps::copy(home, cache, stream);
    stream.synchronize();
    if (std::memcmp(home.data, context.data().input().data, home.bytes) != 0) {
      throw std::runtime_error("wrong result: the cache does not hold the rows appended to it");
    }
  };
  const auto measure = [&](const std::string& label, const auto& run_once) {
    run_once(true);
    std::size_t peak = 0;
    const double seconds = context.median_seconds([&] { peak = run_once(false); });
    const auto appended = static_cast<double>(steps.last - steps.first);
    return ladder::Row{.label = label,
                       .seconds = seconds,
                       .note = ps::format_seconds(seconds / appended) + " per step, at most " +
                               ps::format_bytes(peak) + " held for " +
                               ps::format_bytes(steps.total())};
  };

  const auto reallocate = [&](bool doubling) {
    return [&, doubling](bool checked) {
      Reallocated cache(device, stream, doubling);
      const ps::MemoryView whole =
          fill_cache(steps, rows, stream, [&](std::size_t bytes) { return cache.grow(bytes); });
      stream.synchronize();
      if (checked) check(whole);
      return cache.peak();
    };
  };
  const auto map_pages = [&](bool checked) {
    ps::GrowableBuffer cache(device, {.capacity = steps.total()});
    const ps::MemoryView whole = fill_cache(steps, rows, stream, [&](std::size_t bytes) {
      cache.grow(bytes, stream);
      return cache.view();
    });
    stream.synchronize();
    if (checked) check(whole);
    return cache.mapped();
  };

  std::vector<ladder::Row> result{
      measure("allocate, copy, free at every step", reallocate(false)),
      measure("the same, doubling the capacity", reallocate(true)),
  };
  if (device.capabilities().virtual_memory) {
    result.push_back(measure("pages mapped at reserved addresses", map_pages));
  } else {
    result.push_back(
        {.label = "pages mapped at reserved addresses", .note = "this GPU cannot map memory"});
  }
  return result;
}

PENSTOCK_RUNG("growth", "A cache that grows step by step: copied, or extended by mapping pages.",
              run);

}  // namespace
