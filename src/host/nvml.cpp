#include "host/nvml.h"

#include <dlfcn.h>

#include <array>
#include <fstream>

namespace ps::detail {

std::string nvidia_driver_version() {
  // Never unloaded: it starts things that do not survive that.
  if (void* nvml = dlopen(nvml_name, RTLD_LAZY | RTLD_LOCAL)) {
    using Initialise = int (*)();
    using Version = int (*)(char*, unsigned);
    const auto start = reinterpret_cast<Initialise>(dlsym(nvml, "nvmlInit_v2"));
    const auto stop = reinterpret_cast<Initialise>(dlsym(nvml, "nvmlShutdown"));
    const auto version = reinterpret_cast<Version>(dlsym(nvml, "nvmlSystemGetDriverVersion"));
    if (start != nullptr && stop != nullptr && version != nullptr && start() == 0) {
      std::array<char, 96> text{};
      const int status = version(text.data(), static_cast<unsigned>(text.size() - 1));
      stop();
      if (status == 0) return text.data();
    }
  }
  std::ifstream module("/sys/module/nvidia/version");
  std::string text;
  std::getline(module, text);
  return text;
}

}  // namespace ps::detail
