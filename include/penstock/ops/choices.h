// Which of its prebuilt kernels an operator runs, as `penstock tune` measured it on this machine,
// kept between runs in one small file. Nothing is compiled at run time, and a choice never changes
// a result: it is between kernels that give the same bits.
//
// A kernel that a call names itself comes first, then what was measured here, then what is built
// in. Operators read the file once for each GPU, at their first call; one that is damaged, or of
// another machine, is as good as none.
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

// Of one operator, by problem: "axpby bf16".
using OperatorChoices = std::map<std::string, Choice, std::less<>>;

struct Choices {
  MachineKey key;
  std::map<std::string, OperatorChoices, std::less<>> operators;  // by name: "transform"

  const Choice* find(std::string_view op, std::string_view problem) const;  // null: not measured
};

// choices.json beside limits.json: see limits_cache_path(). Empty when there is no such folder.
std::filesystem::path choices_path();

// Strict: throws InvalidArgument naming the field, what was expected and what was found.
std::vector<Choices> parse_choices(std::string_view text);
std::string format_choices(const std::vector<Choices>& entries);

// Nothing where there is no file. Throws as parse_choices(), SystemError when it cannot be read.
std::vector<Choices> load_choices(const std::filesystem::path& file);

// What the file says of this device; nothing where it does not. Throws as load_choices().
std::optional<Choices> measured_choices(const Device& device);

// Puts `choices` in place of those for the same machine and problems, keeps all others, and
// replaces the file in one step. A file that cannot be parsed is replaced. Throws SystemError.
void save_choices(const std::filesystem::path& file, const Choices& choices);

// Takes the choices of a machine out of the file, of one operator or, without a name, of all, and
// returns how many there were. A file that cannot be parsed is removed. Throws SystemError.
std::size_t forget_choices(const std::filesystem::path& file, const MachineKey& key,
                           std::string_view op = {});

// The file was changed: operators read it again at their next call. Thread-safe.
void reload_choices();

}  // namespace ps
