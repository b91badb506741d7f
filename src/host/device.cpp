#include "penstock/host/device.h"

#include <fmt/format.h>

#include <charconv>

#include "host/backend.h"
#include "host/runtime.h"
#include "penstock/base/error.h"

namespace ps {

std::vector<Device> Device::all() {
  const auto runtime = detail::runtime();
  std::vector<Device> devices{Device(runtime->cpu)};
  for (const auto& gpu : runtime->gpus) devices.emplace_back(gpu);
  return devices;
}

Device Device::cpu() { return Device(detail::runtime()->cpu); }

Device Device::cuda(int index) {
  const auto runtime = detail::runtime();
  const auto count = static_cast<int>(runtime->gpus.size());
  if (index < 0 || index >= count) {
    detail::throw_invalid("device",
                          count == 0 ? fmt::format("a usable GPU ({})", runtime->why_no_gpu)
                                     : fmt::format("a GPU between cuda:0 and cuda:{}", count - 1),
                          fmt::format("cuda:{}", index));
  }
  return Device(runtime->gpus[static_cast<std::size_t>(index)]);
}

Device Device::best() {
  const auto runtime = detail::runtime();
  return Device(runtime->gpus.empty() ? runtime->cpu : runtime->gpus.front());
}

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "best") return best();
  if (text == "cuda") return cuda(0);
  constexpr std::string_view prefix = "cuda:";
  if (text.starts_with(prefix)) {
    const std::string_view digits = text.substr(prefix.size());
    int index = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size()) return cuda(index);
  }
  throw InvalidArgument("device", "cpu, cuda, cuda:N or best", fmt::format("'{}'", text));
}

std::string Device::why_no_gpu() {
  const auto runtime = detail::runtime();
  return runtime->gpus.empty() ? runtime->why_no_gpu : std::string();
}

DeviceKind Device::kind() const { return backend_->kind(); }
int Device::index() const { return backend_->index(); }
std::string Device::name() const { return backend_->name(); }
Capabilities Device::capabilities() const { return backend_->capabilities(); }
Place Device::place() const { return backend_->place(); }
std::uint64_t Device::allocations() const { return backend_->allocations(); }
void Device::synchronize() const { backend_->synchronize(); }

}  // namespace ps
