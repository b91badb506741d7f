#include "measure/machine_tools.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include "host/nvml.h"

namespace ps::detail {
namespace {

namespace fs = std::filesystem;

struct Closer {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, Closer>;

// Stays mapped after dlclose(): these libraries start things that do not survive unloading.
Library open_library(const std::string& name) {
  return Library(dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE));
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// The loader's own search first, then where toolkits keep what is not on the loader's path.
std::string find_cupti() {
  std::vector<std::string> folders = {""};
  for (const std::string& home : {variable("CUDA_HOME"), std::string("/usr/local/cuda")}) {
    if (home.empty()) continue;
    folders.push_back(home + "/lib64/");
    folders.push_back(home + "/extras/CUPTI/lib64/");
  }
  for (const std::string& folder : folders) {
    for (const char* name : {"libcupti.so.13", "libcupti.so.12"}) {
      if (open_library(folder + name)) return folder + name;
    }
  }
  return {};
}

}  // namespace

std::string find_program(std::string_view program, std::string_view path) {
  while (!path.empty()) {
    const std::size_t colon = path.find(':');
    const std::string_view folder = path.substr(0, colon);
    path.remove_prefix(colon == std::string_view::npos ? path.size() : colon + 1);
    if (folder.empty()) continue;
    const fs::path file = fs::path(folder) / program;
    std::error_code error;
    if (fs::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0) return file.string();
  }
  return {};
}

std::vector<Tool> find_tools() {
  const std::string path = variable("PATH");
  return {
      {"CUPTI", "timelines of kernels and copies from the GPU's own clock", find_cupti()},
      {"NVML", "clocks, power and throttling beside a measurement",
       open_library(nvml_name) ? nvml_name : ""},
      {"ncu", "hardware counters of a kernel", find_program("ncu", path)},
      {"compute-sanitizer", "memory and race checks of kernels",
       find_program("compute-sanitizer", path)},
  };
}

}  // namespace ps::detail
