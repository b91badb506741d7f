// The file in which `penstock tune` stores the fastest prebuilt kernel of each operator on this
// machine. All kernels that it chooses from give the same bits, except
// those of gemm that split K, whose last digits may differ.
//
// A call runs the kernel that its options name, else the kernel in the file, else the built-in
// choice. Operators read the file at their first call on each GPU, and ignore a file that is
// damaged or from another machine.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/host/machine_key.h"

namespace ps {

struct Choice {
  std::string kernel;  // "sm90"
  std::string date;    // when measured, UTC: "2026-11-15T08:30:00Z"

  friend bool operator==(const Choice&, const Choice&) = default;
};

// The choices of one operator, by problem: "axpby bf16".
using OperatorChoices = std::map<std::string, Choice, std::less<>>;

struct Choices {
  MachineKey key;
  std::map<std::string, OperatorChoices, std::less<>> operators;  // by name: "transform"

  const Choice* find(std::string_view op, std::string_view problem) const;  // null if not measured
};

// choices.json in the folder of limits_cache_path(); empty if limits_cache_path() is empty.
std::filesystem::path choices_path();

// Parsing is strict: throws InvalidArgument naming the field, the expectation and the value.
std::vector<Choices> parse_choices(std::string_view text);
std::string format_choices(const std::vector<Choices>& entries);

// The file's entries; empty if there is no file. Throws as parse_choices(), and SystemError if the
// file cannot be read.
std::vector<Choices> load_choices(const std::filesystem::path& file);

// The choices for this device, if the file has any. Throws as load_choices() does.
std::optional<Choices> measured_choices(const Device& device);

// Replaces the choices for the same machine and problems, keeps all others, and replaces the file
// atomically. A file that cannot be parsed is overwritten. Throws SystemError.
void save_choices(const std::filesystem::path& file, const Choices& choices);

// Removes the choices of a machine from the file, for one operator or for all, and returns their
// number. A file that cannot be parsed is deleted. Throws SystemError.
std::size_t forget_choices(const std::filesystem::path& file, const MachineKey& key,
                           std::string_view op = {});

// Makes operators read the file again at their next call. Thread-safe.
void reload_choices();

}  // namespace ps
