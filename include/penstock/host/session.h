// Takes items through stages that overlap, as a Pipeline does, but one by one, as the caller pushes
// them: threads and streams are kept, and an item that fails ends alone.
//
//   ps::Session session({.device = ps::Device::best()});
//   auto read = session.async_stage("read", {}, [&](ps::Item& item, const ps::Completion& done) {
//     auto& load = item.payload<Load>();
//     file.read(load.offset, load.host, done);
//   });
//   session.stage("upload", {.after = {read}}, [&](ps::Item& item) {
//     auto& load = item.payload<Load>();
//     ps::copy(load.device, load.host, item.stream());
//   });
//   ps::Ticket ticket = session.push(Load{...});
//   ticket.join(stream);  // work enqueued on `stream` from here on finds the data
//
// penstock/host/stage.h describes stages and rings. A stage sees the items in the order in which
// they were pushed, and an item is done when all stages have finished it, which is also in this
// order.
//
// Items that need nothing from a stage: its function may return without doing anything, or the
// stage is added with a condition. An item that does not meet it passes the stage in its turn: a
// host stage is not woken for it. It still has its place in every ring.
//
// Threads: every member of Session and Ticket may be called from any thread, except that stages and
// rings are added before the first push(). The function of a device stage runs on a thread of the
// session or on a thread that calls push(), one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "penstock/base/recorder.h"
#include "penstock/host/payload.h"
#include "penstock/host/pool.h"
#include "penstock/host/slot_ring.h"
#include "penstock/host/stage.h"
#include "penstock/host/stream.h"

namespace ps {

namespace detail {
class SessionImpl;
class TicketState;
}  // namespace detail

// Stands for one item. A handle; copies refer to the same item, and may outlive the session.
class Ticket {
 public:
  std::uint64_t index() const;  // items are numbered from 0 in the order of push()

  // Whether the item is done, well or not. Never blocks.
  bool done() const;

  // Blocks until the item is done. Throws PipelineError if a stage failed, which names stage and
  // item and holds the cause, and Cancelled if the item was cancelled. Throws InvalidArgument
  // inside a stage function of the same session.
  void wait() const;

  // What wait() would throw; null if the item is not done yet or ended well.
  std::exception_ptr error() const;

  // Makes work that is enqueued on `stream` from now on wait until the item is done, well or not.
  // Does not block, even if the item has not reached the device yet; only on GPUs without stream
  // memory operations (Capabilities::stream_wait_value) it blocks until such an item is done.
  // `stream` may be of any device.
  // Throws Unsupported while it is being captured, and InvalidArgument if it is the stream of a
  // stage that has not enqueued this item yet, which would wait for itself.
  //
  // A stream that waits for an item that is not enqueued yet is held on the device by a flag. CUDA
  // does not know what raises the flag. If `stream` shares a hardware queue with a stream of the
  // session, both wait forever. Each stream has its own queue while the process uses no more
  // streams than CUDA_DEVICE_MAX_CONNECTIONS (8 by default, 32 at most). And CUDA may wait for all
  // work on the device when a kernel is launched for the first time, because it loads the kernel
  // then: kernels that stages or other threads launch while `stream` waits must be loaded before,
  // for example by a launch or by CUDA_MODULE_LOADING=EAGER.
  void join(const Stream& stream) const;

  // The stages that have not started the item pass over it, and wait() throws Cancelled. Work
  // that is enqueued already completes. Returns false, and does nothing, if all stages have started
  // it or it has failed.
  bool cancel() const;

 private:
  friend class Session;
  explicit Ticket(std::shared_ptr<detail::TicketState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::TicketState> state_;
};

struct SessionOptions {
  Device device = Device::best();
  std::size_t depth = 4;       // slots per ring, unless the ring sets its own
  std::size_t in_flight = 64;  // items that are pushed and not done, at most
  // What push() does when there are that many: block, or throw Exhausted.
  WhenExhausted when_full = WhenExhausted::wait;
  std::optional<Pool> pool{};       // for scratch memory; by default the session makes its own
  Waiting waiting = Waiting::poll;  // how the session's threads wait for the device
  // Receives the busy intervals of all stages. Must outlive the session.
  Recorder* recorder = nullptr;
};

// Whether an item, given by its payload, needs a stage. Called by push(), on its thread. An
// exception is thrown by push(), and the item is not pushed.
using StageCondition = std::function<bool(const Payload&)>;

class Session {
 public:
  // Throws InvalidArgument naming the field.
  explicit Session(SessionOptions options = {});

  // Cancels the items in flight, and waits for what has started and until streams that were made
  // to wait by join() have got past this point. Call drain() first to complete all items. Must not
  // be called inside a stage function.
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // Add a ring or a stage, before the first push(). At most 64 stages. They throw InvalidArgument
  // naming the field. `when`: which items need the stage; empty: all.
  RingId ring(std::string_view name, RingOptions options);
  StageId stage(std::string_view name, StageOptions options, StageFunction function,
                StageCondition when = {});
  StageId host_stage(std::string_view name, HostStageOptions options, StageFunction function,
                     StageCondition when = {});
  StageId async_stage(std::string_view name, HostStageOptions options, AsyncFunction function,
                      StageCondition when = {});

  // Adds an item. Where nothing holds it back, its device stages are enqueued before this returns.
  // If `in_flight` items are not done, blocks or throws Exhausted, as `when_full` says; inside a
  // stage function of this session it always throws, since it would wait for itself.
  //
  // The first call allocates rings, streams and events and starts the threads: it throws
  // OutOfMemory, DeviceError or std::system_error if this fails, and InvalidArgument if there is no
  // stage. Later calls fail only for lack of host memory. Failures of stages go to the ticket.
  //
  // The session owns the payload until the item is done, and drops it before the ticket says so.
  Ticket push(Payload payload);
  template <class T>
  Ticket push(std::shared_ptr<T> object) {
    return push(Payload(std::move(object)));
  }
  template <class T>
  Ticket push(T object) {
    return push(Payload(std::make_shared<T>(std::move(object))));
  }

  // As ticket.join(stream).
  void join(const Ticket& ticket, const Stream& stream) const { ticket.join(stream); }

  // Cancels every item in flight, as Ticket::cancel() does. Does not block; items can be pushed
  // afterwards.
  void cancel();

  // Blocks until all items pushed before are done. Throws the first exception that belongs to no
  // ticket, once: that of a function passed to Stream::notify that threw when its item was done
  // already. Throws InvalidArgument inside a stage function of this session.
  void drain();

  std::uint64_t pushed() const;  // items so far
  std::uint64_t done() const;    // of these

 private:
  std::unique_ptr<detail::SessionImpl> impl_;
};

}  // namespace ps
