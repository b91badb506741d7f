// The small files that are kept between runs: lists of entries, in one folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/base/error.h"

namespace ps::detail {

// `name` in $PENSTOCK_CACHE, else in $XDG_CACHE_HOME/penstock, else in ~/.cache/penstock. Empty
// when none of these variables is set.
std::filesystem::path cache_path(std::string_view name);

// Nothing where there is no file. Throws SystemError when it cannot be read.
std::optional<std::string> read_cache(const std::filesystem::path& file);

// Makes the folders on its way and replaces the file in one step: a reader, or a crash, sees the
// old file or the new one. Throws SystemError.
void replace_cache(const std::filesystem::path& file, std::string_view text);

// The file's entries as `parse` makes them of its text; none where there is no file.
template <class Parse>
auto load_cache(const std::filesystem::path& file, const Parse& parse) {
  const std::optional<std::string> text = read_cache(file);
  return text ? parse(*text) : decltype(parse(*text)){};
}

// Lets `change` change the entries and replaces the file.
template <class Parse, class Format, class Change>
void change_cache(const std::filesystem::path& file, const Parse& parse, const Format& format,
                  const Change& change) {
  decltype(parse({})) entries;
  try {
    entries = load_cache(file, parse);
  } catch (const InvalidArgument&) {
    // Nothing in it can be believed, so nothing is lost.
  }
  change(entries);
  replace_cache(file, format(entries));
}

}  // namespace ps::detail
