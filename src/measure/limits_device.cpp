#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "host/drain.h"
#include "host/random_fill.h"
#include "measure/limits_parts.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/event.h"
#include "penstock/host/stream.h"

namespace ps::detail {
namespace {

constexpr std::size_t smallest_buffer = 4 * MiB;

// The buffer's first bytes, as often as `bytes` asks for: a repetition may be longer than a buffer.
template <class Copy>
void in_pieces(std::size_t bytes, std::size_t buffer_bytes, const Copy& copy_piece) {
  for (std::size_t left = bytes; left > 0;) {
    const std::size_t piece = std::min(left, buffer_bytes);
    copy_piece(piece);
    left -= piece;
  }
}

// Seconds between two events around what `enqueue` puts on the stream.
template <class Enqueue>
double timed_on(const Stream& stream, const Enqueue& enqueue) {
  const EventOptions timing{.timing = true, .waiting = Waiting::spin};
  const Event start(stream.device(), timing), stop(stream.device(), timing);
  stream.record(start);
  enqueue();
  stream.record(stop);
  stop.synchronize();
  return Event::seconds_between(start, stop);
}

// Makes something of `bytes`, or of less where that much is not to be had.
template <class Make>
auto shrinking(std::size_t bytes, const Make& make) {
  for (;; bytes /= 2) {
    try {
      return make(bytes);
    } catch (const OutOfMemory&) {
      if (bytes / 2 < smallest_buffer) throw;
    }
  }
}

class DeviceTest {
 public:
  DeviceTest(const Device& device, const LimitsOptions& options, const CeilingTick& tick,
             Rates& rates)
      : device_(device),
        options_(options),
        tick_(tick),
        rates_(rates),
        up_(device),
        down_(device) {}

  void link() {
    struct Buffers {
      PinnedBuffer source, target;
      DeviceBuffer in, out;
    };
    const std::size_t wanted =
        std::min(affordable(options_.link_bytes, available_host_bytes()),
                 affordable(options_.link_bytes, device_.capabilities().free_bytes));
    tick_(Ceiling::h2d, 0);
    const Buffers buffers = shrinking(wanted, [&](std::size_t bytes) {
      return Buffers{PinnedBuffer(device_, bytes), PinnedBuffer(device_, bytes),
                     DeviceBuffer(device_, bytes), DeviceBuffer(device_, bytes)};
    });
    const Drain drain(device_);
    const std::size_t size = buffers.in.bytes();
    fill_random({buffers.source.view().data, size}, 1);
    copy(buffers.out.view(), buffers.source.view(), up_);
    up_.synchronize();

    const auto piece = [](MemoryView to, MemoryView from, const Stream& stream, std::size_t bytes) {
      copy(to.sub(0, bytes), from.sub(0, bytes), stream);
    };
    const auto upload = [&](std::size_t bytes) {
      piece(buffers.in.view(), buffers.source.view(), up_, bytes);
    };
    const auto download = [&](const Stream& stream, std::size_t bytes) {
      piece(buffers.target.view(), buffers.out.view(), stream, bytes);
    };

    run(Ceiling::h2d, size, 1,
        [&](std::size_t bytes) { return timed_on(up_, [&] { in_pieces(bytes, size, upload); }); });
    run(Ceiling::d2h, size, 1, [&](std::size_t bytes) {
      return timed_on(
          down_, [&] { in_pieces(bytes, size, [&](std::size_t part) { download(down_, part); }); });
    });
    run(Ceiling::both_ways, size, 2, [&](std::size_t bytes) {
      const Event fork(device_), join(device_);
      return timed_on(up_, [&] {
        up_.record(fork);
        down_.wait(fork);
        in_pieces(bytes, size, [&](std::size_t part) {
          upload(part);
          download(down_, part);
        });
        down_.record(join);
        up_.wait(join);
      });
    });
    if (options_.pageable) pageable(buffers.source.view(), buffers.in.view());
  }

  void memory() {
    struct Buffers {
      DeviceBuffer source, target;
    };
    tick_(Ceiling::device_copy, 0);
    const std::size_t wanted = affordable(options_.device_bytes, device_.capabilities().free_bytes);
    const Buffers buffers = shrinking(wanted, [&](std::size_t bytes) {
      return Buffers{DeviceBuffer(device_, bytes), DeviceBuffer(device_, bytes)};
    });
    const Drain drain(device_);
    const std::size_t size = buffers.source.bytes();
    scatter_random(buffers.source.view(), up_);
    run(Ceiling::device_copy, size, 2, [&](std::size_t bytes) {
      return timed_on(up_, [&] {
        in_pieces(bytes, size, [&](std::size_t part) {
          copy(buffers.target.view().sub(0, part), buffers.source.view().sub(0, part), up_);
        });
      });
    });
  }

 private:
  void pageable(MemoryView random, MemoryView target) {
    const std::vector<std::byte> ordinary(random.data, random.data + random.bytes);
    const MemoryView source{const_cast<std::byte*>(ordinary.data()), ordinary.size(), Place{}};
    run(Ceiling::h2d_pageable, random.bytes, 1, [&](std::size_t bytes) {
      // The driver stages these on the calling thread, so only the host's clock sees all of it.
      const auto start = std::chrono::steady_clock::now();
      in_pieces(bytes, random.bytes, [&](std::size_t part) {
        copy(target.sub(0, part), source.sub(0, part), up_, {.allow_pageable = true});
      });
      up_.synchronize();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    });
  }

  void run(Ceiling ceiling, std::size_t buffer_bytes, int counted, const Move& move) {
    const SamplingPlan plan{.repetitions = options_.repetitions,
                            .seconds = options_.seconds,
                            .least_bytes = std::min(buffer_bytes, 8 * smallest_buffer),
                            .most_bytes = 16 * buffer_bytes,
                            .granule = MiB};
    Rate rate = sample(plan, counted, move, [&](double fraction) { tick_(ceiling, fraction); });
    const bool link = ceiling != Ceiling::device_copy;
    if (buffer_bytes < (link ? options_.link_bytes : options_.device_bytes) / MiB * MiB) {
      rate.note = fmt::format("with {} buffers: memory is short", format_bytes(buffer_bytes));
    }
    rates_[ceiling] = rate;
  }

  Device device_;
  const LimitsOptions& options_;
  const CeilingTick& tick_;
  Rates& rates_;
  Stream up_, down_;
};

}  // namespace

void measure_device(const Device& device, const LimitsOptions& options, const CeilingTick& tick,
                    Rates& rates) {
  DeviceTest test(device, options, tick, rates);
  test.link();
  test.memory();
}

}  // namespace ps::detail
