#include "penstock/measure/machine.h"

#include <fmt/format.h>

#include <cstdlib>

#include "host/nvml.h"
#include "host/runtime.h"
#include "measure/machine_host.h"
#include "measure/machine_tools.h"
#include "penstock/version.h"

namespace ps {
namespace {

CudaInstallation inspect_cuda() {
  CudaInstallation cuda;
  cuda.built_in = PENSTOCK_WITH_CUDA != 0;
  cuda.why_no_gpu = Device::why_no_gpu();
  if (const auto driver = detail::runtime()->driver) {
    int version = 0;
    if (driver->runtime_version(&version) == cuda::success) cuda.toolkit_version = version;
    version = 0;
    if (driver->driver_version(&version) == cuda::success) cuda.driver_cuda_version = version;
  }
  cuda.driver = detail::nvidia_driver_version();
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) cuda.visible_devices = visible;
  return cuda;
}

}  // namespace

Machine inspect_machine() {
  Machine machine;
  machine.version = PENSTOCK_VERSION;
  machine.host = detail::read_host();
  machine.cuda = inspect_cuda();
  for (const Device& device : Device::all()) {
    if (device.kind() == DeviceKind::cuda) {
      machine.gpus.push_back({device.index(), device.capabilities()});
    }
  }
  machine.tools = detail::find_tools();
  return machine;
}

std::string_view name(Severity severity) {
  return severity == Severity::problem ? "problem" : "advice";
}

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace ps
