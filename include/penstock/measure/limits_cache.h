// Measured ceilings kept between runs, in one small file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/measure/limits.h"

namespace ps {

// limits.json in $PENSTOCK_CACHE, else in $XDG_CACHE_HOME/penstock, else in ~/.cache/penstock.
// Empty when none of these variables is set.
std::filesystem::path limits_cache_path();

// Strict: throws InvalidArgument naming the field, what was expected and what was found.
std::vector<Limits> parse_limits(std::string_view text);
std::string format_limits(const std::vector<Limits>& entries);

// Nothing where there is no file. Throws as parse_limits(), SystemError when it cannot be read.
std::vector<Limits> load_limits(const std::filesystem::path& file);

// Puts `limits` in place of the entry with its key, keeping the others, and replaces the file in
// one step: a reader, or a crash, sees the old file or the new one. A file that cannot be parsed
// is replaced. Throws SystemError.
void save_limits(const std::filesystem::path& file, const Limits& limits);

struct LimitsRequest {
  LimitsOptions measure;
  bool fresh = false;           // measure even if the cache knows
  bool keep = true;             // write what was measured into the cache
  bool this_directory = false;  // disk figures of another directory will not do
};

struct LimitsAnswer {
  Limits limits;
  bool cached = false;                // nothing was measured now
  std::vector<std::string> warnings;  // about the cache; it never makes a call fail
};

// From the cache where it has all that was asked for, else measured and kept.
LimitsAnswer obtain_limits(const Device& device, const LimitsRequest& request);

}  // namespace ps
