// Waits for a device at the end of a scope.
#pragma once

#include <exception>
#include <utility>

#include "penstock/host/device.h"

namespace ps::detail {

// Made after the buffers, so that it waits before they go when a call fails between two pieces of
// work on them.
class Drain {
 public:
  explicit Drain(Device device) : device_(std::move(device)) {}
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;
  ~Drain() {
    try {
      device_.synchronize();
    } catch (const std::exception&) {
      // What failed is already on its way to the caller.
    }
  }

 private:
  Device device_;
};

}  // namespace ps::detail
