#include "fake/faults.h"

#include <utility>

namespace ps::test {

void Faults::fail_call(std::uint64_t n, cuda::Status status, CallNames names) {
  call_ = {.left = n, .status = status, .names = std::move(names)};
  struck_ = false;
}

void Faults::lose_device_at(std::uint64_t n, int device, cuda::Status status) {
  loss_ = {.left = n, .status = status, .device = device};
  struck_ = false;
}

void Faults::fail_work(std::uint64_t n, cuda::Status status) {
  work_ = {.left = n, .status = status};
  struck_ = false;
}

void Faults::disarm() { call_ = loss_ = work_ = {}; }

Faults::Verdict Faults::on_call(std::string_view name) {
  ++calls_;
  const auto counter = by_name_.find(name);
  if (counter == by_name_.end()) {
    by_name_.emplace(name, 1);
  } else {
    ++counter->second;
  }
  Verdict verdict;
  if ((call_.names.empty() || call_.names.contains(name)) && call_.strikes()) {
    verdict.status = call_.status;
    struck_ = true;
  }
  if (loss_.strikes()) {
    verdict.lost = loss_.device;
    verdict.lost_with = loss_.status;
    struck_ = true;
  }
  return verdict;
}

cuda::Status Faults::on_work() {
  if (!work_.strikes()) return cuda::success;
  struck_ = true;
  return work_.status;
}

std::uint64_t Faults::calls(std::string_view name) const {
  const auto counter = by_name_.find(name);
  return counter == by_name_.end() ? 0 : counter->second;
}

}  // namespace ps::test
