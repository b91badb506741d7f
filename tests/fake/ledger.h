// Which memory is allocated, and who touched it: finds accesses that nothing orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fake/clock.h"

namespace ps::test {

enum class MemoryKind : std::uint8_t { pinned, registered, device, pool, mapped, pageable };

// A piece of device work, as it was enqueued.
struct Operation {
  std::string what;  // "copy on stream 3"
  StreamNumber stream = 0;
  Tick tick = 0;
  Clock clock{};
  int device = 0;
  bool local_only = false;  // may touch memory of its own device and page-locked memory only
};

// A point where a stream stands still until the host has done something: a host function, or a flag
// that the host sets. Until then the host may touch what the work behind it will touch.
struct HostGate {
  StreamNumber stream = 0;
  Tick before = 0;  // the last work before it
  Tick tick = 0;
  const std::uint32_t* flag = nullptr;  // null: a host function, open when it returned
  std::uint32_t value = 0;
  bool written = false;  // work of a stream that will write the flag is enqueued

  bool open() const;
};

// Not thread-safe. The checks return what is wrong, or nothing.
class Ledger {
 public:
  explicit Ledger(const HostClock& host) : host_(host) {}

  void add(const void* data, std::size_t bytes, MemoryKind kind, int device);
  void remove(const void* data);

  // Whether an allocation of this kind begins here.
  bool holds(const void* data, MemoryKind kind) const;
  bool covers(const void* data, std::size_t bytes, MemoryKind kind) const;
  // Whether any of the bytes is allocated.
  bool touches(const void* data, std::size_t bytes) const;
  std::size_t count(MemoryKind kind) const;
  std::size_t bytes_at(const void* data) const;
  int device_at(const void* data) const;

  // Device work touches these bytes: they must be allocated, and every earlier access that
  // conflicts must happen before.
  std::string access(const Operation& operation, const void* data, std::size_t bytes, bool write);

  // The host touches these bytes now: it must know of the end of every conflicting access.
  std::string host_access(const void* data, std::size_t bytes, bool write);

  // The host gives the allocation that begins here back: it must know of the end of all its work.
  std::string still_used(const void* data) const;

  void add_gate(const HostGate& gate) { gates_.push_back(gate); }
  // The stream has passed its gates up to here. Returns what is wrong: work behind them that should
  // have waited for other work, which nothing made it do.
  std::vector<std::string> remove_gates(StreamNumber stream, Tick until);
  // A stream with this clock will write the flag. Returns the streams that wait for it at gates.
  std::vector<StreamNumber> opens(const std::uint32_t* flag, std::uint32_t value,
                                  const Clock& clock);

 private:
  using Address = std::uintptr_t;

  struct Access {
    Address begin = 0, end = 0;
    bool write = false;
    Operation operation;
  };

  // Two accesses conflict, and one is behind a closed gate: whoever opens the gate must do so after
  // the other one. Once work that opens it is enqueued, what it follows is settled.
  struct Promise {
    StreamNumber gate_stream = 0;
    Tick gate_tick = 0;
    StreamNumber stream = 0;
    Tick tick = 0;
    std::string complaint;
  };

  struct Range {
    Address begin = 0, end = 0;
    MemoryKind kind = MemoryKind::device;
    int device = 0;
    std::vector<Access> accesses{};
  };

  // The ranges that cover the bytes; empty when some byte is not allocated.
  std::vector<Range*> find(const void* data, std::size_t bytes);
  const Range* at(const void* data) const;
  bool known(const Operation& operation) const {
    return host_.knows(operation.stream, operation.tick);
  }
  bool held_back(const Access& access) const;
  // The last closed gate that the operation is behind and that the host may open: with a flag that
  // no enqueued work writes.
  const HostGate* closed_gate(const Operation& operation) const;
  bool promise(const Operation& behind, const Operation& other, const std::string& complaint);

  const HostClock& host_;
  std::map<Address, Range> ranges_;
  std::vector<HostGate> gates_;
  std::vector<Promise> promises_;
};

}  // namespace ps::test
