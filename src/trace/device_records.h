// The records of a device trace: work on the device, and the stage and item that enqueued it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/recorder.h"
#include "penstock/trace/timeline.h"

namespace ps::detail {

struct DeviceWork {
  Engine engine = Engine::compute;
  std::string name{};             // for work that no stage enqueued
  std::uint32_t correlation = 0;  // the number of the API call that enqueued it
  std::int64_t begin_ns = 0, end_ns = 0;
};

// Not thread-safe. Nothing here throws: what does not fit into memory is counted as lost.
class DeviceRecords {
 public:
  // Registers an item of a stage; returns its external correlation number, or 0 if memory ran out.
  std::uint64_t add_owner(std::string_view stage, std::uint64_t item) noexcept;
  void add_work(const DeviceWork& work) noexcept;
  // The API call with this correlation number was made for the owner with this external number.
  void link(std::uint32_t correlation, std::uint64_t external) noexcept;
  void add_lost(std::uint64_t records) noexcept { lost_ += records; }

  // Writes the work, and how many records were lost, with times counted from `origin_ns`.
  void write_to(Timeline& timeline, std::int64_t origin_ns) const noexcept;
  void clear() noexcept;

 private:
  struct Owner {
    std::string stage;
    std::uint64_t item;
  };
  const Owner* owner_of(const DeviceWork& work) const noexcept;

  std::vector<DeviceWork> work_;
  std::vector<Owner> owners_;                        // external numbers count from 1
  std::map<std::uint32_t, std::uint64_t> external_;  // by correlation number
  std::uint64_t lost_ = 0;
};

}  // namespace ps::detail
