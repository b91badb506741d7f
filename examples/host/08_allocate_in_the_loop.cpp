// Trap: cudaMalloc and cudaFree in the loop. Freeing waits for the whole device, so the overlap is
// gone, in this stream and in everybody else's. Memory from a pool is allocated and freed in stream
// order and stops nobody.
#include <algorithm>
#include <array>
#include <stop_token>
#include <thread>

#include "penstock/base/units.h"
#include "penstock/host/event.h"
#include "penstock/host/pool.h"
#include "penstock/host/stream.h"
#include "penstock/measure/timing.h"
#include "penstock/ops/iterate.h"
#include "support/context.h"

namespace {

// Item i, whole, on one stream: with two streams in turn, uploads run beside kernels.
void enqueue_item(ladder::Context& context, std::size_t i, ps::MemoryView work,
                  const ps::Stream& stream, ladder::Trace& trace) {
  const ps::MemoryView in = context.input(i), out = context.result(i);
  trace(ps::Engine::upload, i, stream, [&] { ps::copy(work, in, stream); });
  trace(ps::Engine::compute, i, stream, [&] {
    ps::iterate({.in = ps::floats(work), .out = ps::floats(out), .rounds = context.rounds()},
                stream);
  });
}

class Loop {
 public:
  explicit Loop(ladder::Context& context)
      : context_(context),
        streams_{ps::Stream(context.device()), ps::Stream(context.device())},
        pool_(context.device()) {}

  void with_device_allocation(ladder::Trace& trace) {
    std::array<ps::DeviceBuffer, 2> buffers;
    for (std::size_t i = 0; i < context_.chunks(); ++i) {
      const ps::Stream& stream = streams_[i % 2];
      stream.synchronize();  // the buffer that goes away must not be in use any more
      buffers[i % 2] = ps::DeviceBuffer(context_.device(), context_.input(i).bytes);
      enqueue_item(context_, i, buffers[i % 2].view(), stream, trace);
    }
    for (const ps::Stream& stream : streams_) stream.synchronize();
  }

  void with_pool(ladder::Trace& trace) {
    for (std::size_t i = 0; i < context_.chunks(); ++i) {
      const ps::Stream& stream = streams_[i % 2];
      const ps::MemoryView work = pool_.allocate(context_.input(i).bytes, stream);
      enqueue_item(context_, i, work, stream, trace);
      pool_.free(work, stream);
    }
    for (const ps::Stream& stream : streams_) stream.synchronize();
  }

 private:
  ladder::Context& context_;
  std::array<ps::Stream, 2> streams_;
  ps::Pool pool_;
};

// Somebody else's stream: small kernels in steady sequence, each waited for. Meanwhile `beside`
// runs over and over on a thread of its own.
ladder::Row measure_neighbour(ladder::Context& context, std::string label,
                              const std::function<void()>& beside) {
  const std::size_t kernels = context.quick() ? 200 : 2000;
  const ps::Stream stream(context.device());
  const ps::Event done(context.device(), {.waiting = ps::Waiting::spin});
  const ps::DeviceBuffer buffer(context.device(), 64 * ps::KiB);
  ps::fill(buffer.view(), 0, stream);

  std::jthread other([&](const std::stop_token& stop) {
    while (beside && !stop.stop_requested()) beside();
  });
  double slowest = 0;
  const auto small_kernel = [&] {
    const ps::TensorView in_place = ps::floats(buffer.view());
    ps::iterate({.in = in_place, .out = in_place, .rounds = 8}, stream);
    stream.record(done);
    done.synchronize();
  };
  small_kernel();
  const double seconds = ps::seconds_of([&] {
    for (std::size_t k = 0; k < kernels; ++k) {
      slowest = std::max(slowest, ps::seconds_of(small_kernel));
    }
  });
  other.request_stop();
  return {.label = std::move(label),
          .work = "other stream",
          .seconds = seconds,
          .note = std::to_string(kernels) + " small kernels on another stream; slowest " +
                  ps::format_seconds(slowest)};
}

std::vector<ladder::Row> run(ladder::Context& context) {
  Loop loop(context);
  ladder::Trace off;
  return {
      context.measure("allocated and freed per item", ps::Ways::two,
                      [&](ladder::Trace& trace) { loop.with_device_allocation(trace); }),
      context.measure("from a pool, per item", ps::Ways::two,
                      [&](ladder::Trace& trace) { loop.with_pool(trace); }),
      measure_neighbour(context, "other stream, alone", {}),
      measure_neighbour(context, "other stream, during the loop with the pool",
                        [&] { loop.with_pool(off); }),
      measure_neighbour(context, "other stream, during the loop that allocates",
                        [&] { loop.with_device_allocation(off); }),
  };
}

PENSTOCK_RUNG("allocation",
              "cudaMalloc and cudaFree in a loop stall all streams; a pool stalls none.", run);

}  // namespace
