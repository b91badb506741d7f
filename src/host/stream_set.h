// The streams whose work may still use some memory.
#pragma once

#include <memory>
#include <vector>

#include "host/backend.h"
#include "penstock/host/event.h"
#include "penstock/host/stream.h"

namespace ps::detail {

// The library's own streams are not kept alive: of those that are gone, only that there were some
// is remembered. Borrowed ones count once per native stream. Not thread-safe.
class StreamSet {
 public:
  void add(const Stream& stream);

  // Waits for the streams' work. If some are gone, for all work on the device.
  void drain(Backend& backend) noexcept;

  struct Mark {
    std::vector<Event> events;
    bool all = false;  // some streams are gone: all work on the device counts
  };
  // Behind what the streams have been given so far. Throws DeviceError or OutOfMemory, and
  // Unsupported while one of them is being captured: nobody could wait for its events.
  Mark mark(const Device& device);

 private:
  std::vector<std::weak_ptr<StreamImpl>> owned_;
  bool some_are_gone_ = false;
  std::vector<Stream> borrowed_;
};

}  // namespace ps::detail
