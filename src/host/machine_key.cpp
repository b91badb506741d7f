#include "host/machine_key.h"

#include "host/cuda/backend.h"
#include "host/nvml.h"
#include "penstock/version.h"

namespace ps {

MachineKey machine_key(const Device& device) {
  MachineKey key{.device = {},
                 .driver = {},
                 .cpu = Device::cpu().capabilities().name,
                 .version = PENSTOCK_VERSION};
  if (device.kind() == DeviceKind::cuda) {
    // Known already: a stream may be recording, and some questions to the driver would spoil that.
    key.device = static_cast<cuda::Backend&>(device.backend()).properties().name;
    key.driver = detail::nvidia_driver_version();
  } else {
    key.device = key.cpu;
  }
  return key;
}

namespace detail {

MachineKey parse_key(const Reading& entry) {
  return {.device = entry["device"].text(),
          .driver = entry["driver"].text(),
          .cpu = entry["cpu"].text(),
          .version = entry["version"].text()};
}

nlohmann::ordered_json key_json(const MachineKey& key) {
  return {
      {"device", key.device}, {"driver", key.driver}, {"cpu", key.cpu}, {"version", key.version}};
}

}  // namespace detail
}  // namespace ps
