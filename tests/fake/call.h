// One call of the driver table: takes the lock, counts, lets a fault strike, and keeps the status.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fake/simulation.h"

namespace ps::test {

// Whether a call that is to fail does its work all the same: calls that free, destroy or wait do,
// for what they report then is the failure of earlier work.
enum class OnFault : std::uint8_t { does_nothing, acts };

class Call {
 public:
  Call(Simulation& simulation, const char* name, OnFault on_fault = OnFault::does_nothing);

  // Whether to go on; when not, return status().
  bool proceeds() const { return status_ == cuda::success || on_fault_ == OnFault::acts; }
  cuda::Status status() const { return status_; }

  // Ends the call with this status; the caller's last error becomes it.
  cuda::Status fail(cuda::Status status);
  // Ends the call as wrong use.
  cuda::Status wrong(std::string violation, cuda::Status status = invalid_value);

  cuda::Status conclude(AddressSpace::Result result);

  // The stream of a handle, or null and status() set: no such stream, not allowed, device lost.
  std::shared_ptr<FakeStream> stream(cuda::StreamHandle handle);
  FakeEvent* event(cuda::EventHandle handle);
  std::shared_ptr<FakePool> pool(cuda::PoolHandle handle);

  // Whether the call may go on on this device; sets status() when the device is lost.
  bool on(int device);
  bool is_lost(int device) const;
  // For calls that wait or query: a stream that is being captured forbids them.
  bool forbidden_in_capture(const FakeStream& stream);

  int current() { return simulation_.caller().device; }
  bool is_device(int device) const { return device >= 0 && device < simulation_.options.devices; }
  const char* name() const { return name_; }
  Simulation::Lock& lock() { return lock_; }

 private:
  Simulation& simulation_;
  const char* name_;
  OnFault on_fault_;
  cuda::Status status_ = cuda::success;
  Simulation::Lock lock_;
};

}  // namespace ps::test
