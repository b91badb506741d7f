// Caches measured ceilings in a file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/measure/limits.h"

namespace ps {

// limits.json in $PENSTOCK_CACHE, else in $XDG_CACHE_HOME/penstock, else in ~/.cache/penstock.
// Empty if none of these variables is set.
std::filesystem::path limits_cache_path();

// Parsing is strict: throws InvalidArgument naming the field, the expectation and the value.
std::vector<Limits> parse_limits(std::string_view text);
std::string format_limits(const std::vector<Limits>& entries);

// The file's entries; empty if there is no file. Throws as parse_limits(), and SystemError if the
// file cannot be read.
std::vector<Limits> load_limits(const std::filesystem::path& file);

// Replaces the entry with the same key, keeps the others, and replaces the file atomically. A file
// that cannot be parsed is overwritten. Throws SystemError.
void save_limits(const std::filesystem::path& file, const Limits& limits);

struct LimitsRequest {
  LimitsOptions measure;
  bool fresh = false;           // measure even if the cache has an entry
  bool keep = true;             // save new measurements to the cache
  bool this_directory = false;  // do not accept disk figures of another directory
};

struct LimitsAnswer {
  Limits limits;
  bool cached = false;                // all from the cache
  std::vector<std::string> warnings;  // about the cache, whose errors are not thrown
};

// The cached ceilings if they cover the request; otherwise measures and saves them. Throws as
// measure_limits() does.
LimitsAnswer obtain_limits(const Device& device, const LimitsRequest& request);

}  // namespace ps
