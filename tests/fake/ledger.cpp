#include "fake/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

namespace ps::test {

bool HostGate::open() const {
  if (flag == nullptr) return false;
  // atomic_ref<const T> does not exist before C++26; the load changes nothing.
  const std::atomic_ref<std::uint32_t> value_now(*const_cast<std::uint32_t*>(flag));
  return static_cast<std::int32_t>(value_now.load(std::memory_order_acquire) - value) >= 0;
}

void Ledger::add(const void* data, std::size_t bytes, MemoryKind kind, int device) {
  const auto begin = reinterpret_cast<Address>(data);
  ranges_.insert_or_assign(
      begin, Range{.begin = begin, .end = begin + bytes, .kind = kind, .device = device});
}

void Ledger::remove(const void* data) { ranges_.erase(reinterpret_cast<Address>(data)); }

const Ledger::Range* Ledger::at(const void* data) const {
  const auto found = ranges_.find(reinterpret_cast<Address>(data));
  return found == ranges_.end() ? nullptr : &found->second;
}

bool Ledger::holds(const void* data, MemoryKind kind) const {
  const Range* range = at(data);
  return range != nullptr && range->kind == kind;
}

bool Ledger::covers(const void* data, std::size_t bytes, MemoryKind kind) const {
  const auto begin = reinterpret_cast<Address>(data);
  auto next = ranges_.upper_bound(begin);
  if (next == ranges_.begin()) return false;
  const Range& range = std::prev(next)->second;
  return range.kind == kind && begin + bytes <= range.end;
}

bool Ledger::touches(const void* data, std::size_t bytes) const {
  const auto begin = reinterpret_cast<Address>(data);
  const auto behind = ranges_.lower_bound(begin + bytes);
  return behind != ranges_.begin() && std::prev(behind)->second.end > begin;
}

std::size_t Ledger::count(MemoryKind kind) const {
  return static_cast<std::size_t>(
      std::count_if(ranges_.begin(), ranges_.end(),
                    [&](const auto& entry) { return entry.second.kind == kind; }));
}

std::size_t Ledger::bytes_at(const void* data) const {
  const Range* range = at(data);
  return range == nullptr ? 0 : range->end - range->begin;
}

int Ledger::device_at(const void* data) const {
  const Range* range = at(data);
  return range == nullptr ? 0 : range->device;
}

std::vector<Ledger::Range*> Ledger::find(const void* data, std::size_t bytes) {
  auto begin = reinterpret_cast<Address>(data);
  const Address end = begin + bytes;
  std::vector<Range*> found;
  auto next = ranges_.upper_bound(begin);
  if (next == ranges_.begin()) return {};
  for (auto range = std::prev(next); range != ranges_.end() && begin < end; ++range) {
    if (range->second.begin > begin || range->second.end <= begin) return {};
    // Only mapped ranges are one memory where they touch; other neighbours are so by chance.
    if (!found.empty() &&
        (range->second.kind != MemoryKind::mapped || found.back()->kind != MemoryKind::mapped)) {
      return {};
    }
    found.push_back(&range->second);
    begin = range->second.end;
  }
  return begin < end ? std::vector<Range*>{} : found;
}

std::string Ledger::access(const Operation& operation, const void* data, std::size_t bytes,
                           bool write) {
  if (bytes == 0) return {};
  const auto begin = reinterpret_cast<Address>(data);
  const Address end = begin + bytes;
  const std::vector<Range*> found = find(data, bytes);
  if (found.empty()) {
    return fmt::format("{} touches {} bytes at {} that are not allocated", operation.what, bytes,
                       data);
  }
  std::string complaint;
  for (Range* range : found) {
    const bool on_device = range->kind != MemoryKind::pinned &&
                           range->kind != MemoryKind::registered &&
                           range->kind != MemoryKind::pageable;
    if (operation.local_only && on_device && range->device != operation.device) {
      complaint = fmt::format("{} of device {} touches memory of device {}", operation.what,
                              operation.device, range->device);
    }
    std::erase_if(range->accesses, [&](const Access& earlier) { return known(earlier.operation); });
    for (const Access& earlier : range->accesses) {
      const bool overlap = earlier.begin < end && begin < earlier.end;
      const bool ordered = earlier.operation.tick <= operation.clock.at(earlier.operation.stream);
      if (!overlap || (!write && !earlier.write) || ordered) continue;
      std::string text =
          fmt::format("{} does not wait for {}, which {} the same memory", operation.what,
                      earlier.operation.what, earlier.write ? "writes" : "reads");
      if (!promise(operation, earlier.operation, text) &&
          !promise(earlier.operation, operation, text)) {
        complaint = std::move(text);
      }
    }
    if (!complaint.empty()) continue;
    // What this write follows and covers needs no check any more: this write stands for it.
    std::erase_if(range->accesses, [&](const Access& earlier) {
      return write && begin <= earlier.begin && earlier.end <= end;
    });
    range->accesses.push_back(
        {std::max(begin, range->begin), std::min(end, range->end), write, operation});
  }
  return complaint;
}

// A write stands for the accesses that it followed as well, so for it the host must also know that
// what came before the gate is done.
bool Ledger::held_back(const Access& access) const {
  return std::any_of(gates_.begin(), gates_.end(), [&](const HostGate& gate) {
    return access.operation.clock.at(gate.stream) >= gate.tick &&
           (!access.write || host_.knows(gate.stream, gate.before)) && !gate.open();
  });
}

std::string Ledger::host_access(const void* data, std::size_t bytes, bool write) {
  const auto begin = reinterpret_cast<Address>(data);
  const Address end = begin + bytes;
  const std::vector<Range*> found = find(data, bytes);
  if (found.empty()) {
    return fmt::format("the host touches {} bytes at {} that are not allocated", bytes, data);
  }
  for (const Range* range : found) {
    for (const Access& earlier : range->accesses) {
      const bool overlap = earlier.begin < end && begin < earlier.end;
      if (overlap && (write || earlier.write) && !known(earlier.operation) && !held_back(earlier)) {
        return fmt::format("the host {} memory without waiting for {}, which {} it",
                           write ? "writes" : "reads", earlier.operation.what,
                           earlier.write ? "writes" : "reads");
      }
    }
  }
  return {};
}

std::string Ledger::still_used(const void* data) const {
  const Range* range = at(data);
  if (range == nullptr) return {};
  for (const Access& earlier : range->accesses) {
    if (!known(earlier.operation)) {
      return fmt::format("memory at {} is freed without waiting for {}", data,
                         earlier.operation.what);
    }
  }
  return {};
}

const HostGate* Ledger::closed_gate(const Operation& operation) const {
  const HostGate* last = nullptr;
  for (const HostGate& gate : gates_) {
    if (gate.flag == nullptr || gate.written || gate.open()) continue;
    if (operation.clock.at(gate.stream) >= gate.tick) last = &gate;
  }
  return last;
}

bool Ledger::promise(const Operation& behind, const Operation& other,
                     const std::string& complaint) {
  const HostGate* gate = closed_gate(behind);
  if (gate == nullptr || closed_gate(other) != nullptr) return false;
  promises_.push_back({gate->stream, gate->tick, other.stream, other.tick, complaint});
  return true;
}

std::vector<StreamNumber> Ledger::opens(const std::uint32_t* flag, std::uint32_t value,
                                        const Clock& clock) {
  std::vector<StreamNumber> waiting;
  for (HostGate& gate : gates_) {
    if (gate.flag != flag || static_cast<std::int32_t>(value - gate.value) < 0) continue;
    gate.written = true;
    waiting.push_back(gate.stream);
    std::erase_if(promises_, [&](const Promise& p) {
      return p.gate_stream == gate.stream && p.gate_tick == gate.tick &&
             p.tick <= clock.at(p.stream);
    });
  }
  return waiting;
}

std::vector<std::string> Ledger::remove_gates(StreamNumber stream, Tick until) {
  std::erase_if(gates_,
                [&](const HostGate& gate) { return gate.stream == stream && gate.tick <= until; });
  std::vector<std::string> broken;
  std::erase_if(promises_, [&](const Promise& p) {
    if (p.gate_stream != stream || p.gate_tick > until) return false;
    if (!host_.knows(p.stream, p.tick)) broken.push_back(p.complaint);
    return true;
  });
  return broken;
}

}  // namespace ps::test
