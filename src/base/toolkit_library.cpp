#include "base/toolkit_library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace ps::detail {
namespace {

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return paths;
}

// The folder of this library, or of the program where it is part of that.
std::string here() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&open_toolkit_library), &info) == 0) return ".";
  return std::filesystem::path(info.dli_fname).parent_path().string();
}

// Where it may be, the most telling first.
std::vector<std::string> candidates(const std::string& name, const char* variable) {
  std::vector<std::string> names;
  if (const char* path = std::getenv(variable)) names.emplace_back(path);
  names.push_back(here() + "/" + name);
  names.push_back(name);
  std::vector<std::string> patterns;
  for (const char* root : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* folder = std::getenv(root)) {
      patterns.push_back(std::string(folder) + "/lib64/" + name);
      patterns.push_back(std::string(folder) + "/extras/CUPTI/lib64/" + name);
    }
  }
  patterns.push_back("/usr/local/cuda*/lib64/" + name);
  patterns.push_back("/usr/local/cuda*/extras/CUPTI/lib64/" + name);
  patterns.push_back("/usr/local/lib/python3*/*-packages/nvidia/*/lib/" + name);
  for (const std::string& pattern : patterns) {
    const auto more = matches(pattern);
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

}  // namespace

void* open_toolkit_library(const std::string& name, const char* variable) {
  for (const std::string& path : candidates(name, variable)) {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace ps::detail
