// Stages: the steps that the items of a Pipeline or a Session go through, and the rings of slots
// that stages pass their data in.
//
// Order: every stage takes the items in order. A stage starts item i when all stages in its `after`
// have finished item i and the slots it acquires are free.
//
// Rings: a ring has `depth` slots, and item i uses slot i % depth. The first stage that uses a ring
// acquires the slot; all other users must come after that stage. The slot is free again when all
// users have finished the item.
//
// Kinds of stages: a device stage enqueues work on its stream and returns; device stages wait for
// each other on the device. A host stage has its own thread and may block. An async stage starts an
// item and calls a Completion when the item is done, so that several items are in flight at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/base/recorder.h"
#include "penstock/base/view.h"
#include "penstock/host/payload.h"
#include "penstock/host/stream.h"

namespace ps {

namespace detail {
class Ending;
class Executor;
}  // namespace detail

struct StageId {
  std::size_t value = static_cast<std::size_t>(-1);
};
struct RingId {
  std::size_t value = static_cast<std::size_t>(-1);
};

// The argument of a stage function. Valid during the call only.
class Item {
 public:
  std::uint64_t index() const { return index_; }

  // This item's slot of `ring`. Throws InvalidArgument if `ring` is not in the stage's `uses`.
  MemoryView slot(RingId ring) const;

  // The stage's stream. Throws InvalidArgument in a host stage.
  const Stream& stream() const;

  // The object that was pushed to a Session as this item. Throws InvalidArgument if its type is
  // not T, and in a Pipeline, whose items have no payload.
  template <class T>
  T& payload() const {
    return payload().get<T>();
  }
  const Payload& payload() const;

  // Temporary memory from the pool, for device stages. It is allocated in the stage's stream and
  // freed in stream order: after this stage, or after stage `until` has finished this item. `until`
  // must come after this stage. Throws OutOfMemory.
  MemoryView scratch(std::size_t bytes);
  MemoryView scratch(std::size_t bytes, StageId until);

  // Whether the result is no longer wanted: the item or the run was cancelled or has failed. Long
  // host stages should poll this and return early.
  bool stopping() const;

 private:
  friend class detail::Executor;
  Item(detail::Executor& executor, std::size_t stage, std::uint64_t index)
      : executor_(&executor), stage_(stage), index_(index) {}
  detail::Executor* executor_;
  std::size_t stage_;
  std::uint64_t index_;
};

using StageFunction = std::function<void(Item&)>;

// Ends one item of an async stage. Call it once, from any thread, when the item's slots and payload
// are no longer in use; the item does not end without it. Copies refer to the same item. If the
// last copy is destroyed without a call, the item has failed.
class Completion {
 public:
  // `failure`: the reason if the item failed.
  void operator()(std::exception_ptr failure = nullptr) const;

 private:
  friend class detail::Executor;
  explicit Completion(std::shared_ptr<detail::Ending> ending) : ending_(std::move(ending)) {}
  std::shared_ptr<detail::Ending> ending_;
};

// Starts an item. The Item is valid during the call, its slots and payload until the Completion is
// called.
using AsyncFunction = std::function<void(Item&, const Completion&)>;

struct RingOptions {
  Memory memory = Memory::pinned;
  std::size_t bytes = 0;  // of one slot
  std::size_t depth = 0;  // number of slots; 0: the depth of the pipeline or session
};

struct StageOptions {
  std::vector<StageId> after{};     // stages that must finish an item first
  std::vector<RingId> uses{};       // rings whose slots the stage touches
  Engine engine = Engine::compute;  // where the work appears on timelines
  Priority priority = Priority::normal;
  std::optional<Stream> stream{};  // the caller's stream; by default the stage has its own
};

struct HostStageOptions {
  std::vector<StageId> after{};  // stages that must finish an item first
  std::vector<RingId> uses{};    // rings whose slots the stage touches
  Engine engine = Engine::host;  // where the work appears on timelines
};

// The error of an item, with its stage, its index and the original exception.
class PipelineError : public std::runtime_error {
 public:
  PipelineError(std::string_view stage, std::uint64_t item, std::exception_ptr cause);
  const std::string& stage() const noexcept { return stage_; }
  std::uint64_t item() const noexcept { return item_; }
  const std::exception_ptr& cause() const noexcept { return cause_; }

 private:
  std::string stage_;
  std::uint64_t item_;
  std::exception_ptr cause_;
};

}  // namespace ps
