// Options that several commands share, spelled and checked alike.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

namespace ps::cli {

// --device cpu|cuda|cuda:N|best; a device that is not there is a usage error.
void add_device_option(CLI::App& command, std::string& device);

// --json: one JSON document on standard output instead of text.
void add_json_flag(CLI::App& command, bool& json);

// A size such as 64MiB. The value it has now is shown as the default, unless it is 0.
void add_bytes_option(CLI::App& command, const std::string& flag, std::size_t& bytes,
                      const std::string& help);

}  // namespace ps::cli
