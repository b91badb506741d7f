#include "trace/device_records.h"

#include <new>

namespace ps::detail {

std::uint64_t DeviceRecords::add_owner(std::string_view stage, std::uint64_t item) noexcept {
  try {
    owners_.push_back({std::string(stage), item});
    return owners_.size();
  } catch (const std::bad_alloc&) {
    ++lost_;
    return 0;
  }
}

void DeviceRecords::add_work(const DeviceWork& work) noexcept {
  try {
    work_.push_back(work);
  } catch (const std::bad_alloc&) {
    ++lost_;
  }
}

void DeviceRecords::link(std::uint32_t correlation, std::uint64_t external) noexcept {
  try {
    external_[correlation] = external;
  } catch (const std::bad_alloc&) {
    ++lost_;
  }
}

void DeviceRecords::write_to(Timeline& timeline, std::int64_t origin_ns) const noexcept {
  std::uint64_t unowned = 0;
  for (const DeviceWork& work : work_) {
    const Owner* const owner = owner_of(work);
    timeline.record({work.engine, owner != nullptr ? std::string_view(owner->stage) : work.name,
                     owner != nullptr ? owner->item : unowned++, work.begin_ns - origin_ns,
                     work.end_ns - origin_ns});
  }
  timeline.add_lost(lost_);
}

void DeviceRecords::clear() noexcept {
  work_.clear();
  owners_.clear();
  external_.clear();
  lost_ = 0;
}

const DeviceRecords::Owner* DeviceRecords::owner_of(const DeviceWork& work) const noexcept {
  const auto external = external_.find(work.correlation);
  if (external == external_.end()) return nullptr;
  const bool known = external->second > 0 && external->second <= owners_.size();
  return known ? &owners_[external->second - 1] : nullptr;
}

}  // namespace ps::detail
