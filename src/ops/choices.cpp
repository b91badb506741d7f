// The file of choices. Reading is strict: a file that is not exactly ours is not believed.
#include "penstock/ops/choices.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/cache_file.h"
#include "base/reading.h"
#include "host/machine_key.h"

namespace ps {
namespace {

using ChoicesJson = nlohmann::ordered_json;

constexpr int choices_schema = 1;

OperatorChoices parse_operator(const detail::Reading& op) {
  OperatorChoices choices;
  for (const auto& [problem, choice] : op.fields()) {
    choice.only({"kernel", "date"});
    choices[problem] = {.kernel = choice["kernel"].text(), .date = choice["date"].time()};
  }
  return choices;
}

Choices parse_machine(const detail::Reading& entry) {
  entry.only({"device", "driver", "cpu", "version", "operators"});
  Choices choices{.key = detail::parse_key(entry), .operators = {}};
  for (const auto& [name, op] : entry["operators"].fields()) {
    choices.operators[name] = parse_operator(op);
  }
  return choices;
}

ChoicesJson machine_json(const Choices& choices) {
  ChoicesJson operators = ChoicesJson::object();
  for (const auto& [name, problems] : choices.operators) {
    ChoicesJson& op = operators[name] = ChoicesJson::object();
    for (const auto& [problem, choice] : problems) {
      op[problem] = {{"kernel", choice.kernel}, {"date", choice.date}};
    }
  }
  ChoicesJson entry = detail::key_json(choices.key);
  entry["operators"] = std::move(operators);
  return entry;
}

}  // namespace

const Choice* Choices::find(std::string_view op, std::string_view problem) const {
  const auto problems = operators.find(op);
  if (problems == operators.end()) return nullptr;
  const auto choice = problems->second.find(problem);
  return choice == problems->second.end() ? nullptr : &choice->second;
}

std::filesystem::path choices_path() { return detail::cache_path("choices.json"); }

std::vector<Choices> parse_choices(std::string_view text) {
  constexpr int deepest = 8;
  const ChoicesJson document = detail::parse_json(text, "choices", deepest);
  const detail::Reading file(document, "choices");
  if (const auto version = file.find("schema"); version) {
    version->count(choices_schema, choices_schema);
  }
  file.only({"schema", "entries"});
  std::vector<Choices> entries;
  for (const detail::Reading& entry : file["entries"].items()) {
    entries.push_back(parse_machine(entry));
  }
  return entries;
}

std::string format_choices(const std::vector<Choices>& entries) {
  ChoicesJson list = ChoicesJson::array();
  for (const Choices& choices : entries) list.push_back(machine_json(choices));
  const ChoicesJson document = {{"schema", choices_schema}, {"entries", std::move(list)}};
  return document.dump(2, ' ', false, ChoicesJson::error_handler_t::replace) + "\n";
}

std::vector<Choices> load_choices(const std::filesystem::path& file) {
  return detail::load_cache(file, parse_choices);
}

std::optional<Choices> measured_choices(const Device& device) {
  const std::filesystem::path file = choices_path();
  if (file.empty()) return std::nullopt;
  std::vector<Choices> entries = load_choices(file);
  if (entries.empty()) return std::nullopt;  // the key need not be found out
  const auto found = std::ranges::find(entries, machine_key(device), &Choices::key);
  if (found == entries.end()) return std::nullopt;
  return std::move(*found);
}

void save_choices(const std::filesystem::path& file, const Choices& choices) {
  detail::change_cache(file, parse_choices, format_choices, [&](std::vector<Choices>& entries) {
    auto entry = std::ranges::find(entries, choices.key, &Choices::key);
    if (entry == entries.end()) {
      entry = entries.insert(entry, {.key = choices.key, .operators = {}});
    }
    for (const auto& [name, problems] : choices.operators) {
      for (const auto& [problem, choice] : problems) entry->operators[name][problem] = choice;
    }
  });
}

std::size_t forget_choices(const std::filesystem::path& file, const MachineKey& key,
                           std::string_view op) {
  std::vector<Choices> entries;
  try {
    entries = load_choices(file);
  } catch (const InvalidArgument&) {
    // Removed below: nothing in it can be believed.
  }
  std::size_t forgotten = 0;
  for (Choices& choices : entries) {
    if (choices.key != key) continue;
    std::erase_if(choices.operators, [&](const auto& each) {
      const bool goes = op.empty() || each.first == op;
      if (goes) forgotten += each.second.size();
      return goes;
    });
  }
  std::erase_if(entries, [](const Choices& choices) { return choices.operators.empty(); });
  if (!entries.empty()) {
    if (forgotten > 0) detail::replace_cache(file, format_choices(entries));
    return forgotten;
  }
  std::error_code error;
  std::filesystem::remove(file, error);
  if (error) throw SystemError(error.value(), "remove", file.string());
  return forgotten;
}

}  // namespace ps
