// The file of choices: what is believed, what is refused and how it is replaced.
#include "penstock/ops/choices.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "support/environment.h"
#include "support/temporary_directory.h"

namespace ps {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::TemporaryDirectory;

constexpr auto morning = "2026-11-15T08:30:00Z", evening = "2026-11-15T20:00:00Z";

Choices choices_for(const std::string& device, const std::string& kernel) {
  Choices choices{.key = {device, "1.0", "CPU", "0.1.0"}, .operators = {}};
  choices.operators["transform"]["axpby bf16"] = {kernel, morning};
  return choices;
}

std::string kernel_in(const std::vector<Choices>& entries, const std::string& device) {
  for (const Choices& each : entries) {
    const Choice* choice = each.find("transform", "axpby bf16");
    if (each.key.device == device && choice != nullptr) return choice->kernel;
  }
  return "none";
}

TEST(ChoicesFile, LiesBesideTheLimits) {
  const test::Variable cache("PENSTOCK_CACHE", "/p");
  EXPECT_EQ(choices_path(), "/p/choices.json");
}

TEST(ChoicesFile, ComesBackAsItWasWritten) {
  const std::vector<Choices> written = {choices_for("A", "sm90"), choices_for("B", "portable")};
  const std::vector<Choices> read = parse_choices(format_choices(written));
  ASSERT_EQ(read.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read[i].key, written[i].key);
    EXPECT_EQ(read[i].operators, written[i].operators);
  }
  EXPECT_EQ(read[0].find("transform", "mul f32"), nullptr);
  EXPECT_EQ(read[0].find("iterate", "axpby bf16"), nullptr);
  EXPECT_TRUE(parse_choices(format_choices({})).empty());
}

struct Spoilt {
  std::string pointer, value, argument;  // an empty value removes the field
};

TEST(ChoicesFile, NamesTheFieldThatIsWrong) {
  const std::string choice = "/entries/0/operators/transform/axpby bf16";
  const std::string named = "choices.entries[0].operators.transform.axpby bf16";
  const std::vector<Spoilt> cases = {
      {"/schema", "2", "choices.schema"},
      {"/schema", "", "choices.schema"},
      {"/more", "1", "choices.more"},
      {"/entries", "{}", "choices.entries"},
      {"/entries/0", "1", "choices.entries[0]"},
      {"/entries/0/device", "1", "choices.entries[0].device"},
      {"/entries/0/driver", "", "choices.entries[0].driver"},
      {"/entries/0/rates", "{}", "choices.entries[0].rates"},
      {"/entries/0/operators", "[]", "choices.entries[0].operators"},
      {"/entries/0/operators/transform", "1", "choices.entries[0].operators.transform"},
      {choice, "\"sm90\"", named},
      {choice + "/kernel", "90", named + ".kernel"},
      {choice + "/kernel", "", named + ".kernel"},
      {choice + "/date", "\"today\"", named + ".date"},
      {choice + "/gain", "1", named + ".gain"},
  };
  for (const Spoilt& each : cases) {
    SCOPED_TRACE(each.pointer + " = " + each.value);
    Json json = Json::parse(format_choices({choices_for("A", "sm90")}));
    const Json::json_pointer at(each.pointer);
    if (each.value.empty()) {
      json[at.parent_pointer()].erase(at.back());
    } else {
      json[at] = Json::parse(each.value);
    }
    try {
      parse_choices(json.dump());
      ADD_FAILURE() << "believed";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), each.argument);
    }
  }
}

TEST(ChoicesFile, RefusesEveryTruncationAndDeepNesting) {
  std::string text = format_choices({choices_for("A", "sm90")});
  text.erase(text.find_last_not_of("\n ") + 1);
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_THROW(parse_choices(text.substr(0, length)), InvalidArgument) << length;
  }
  EXPECT_THROW(parse_choices(std::string(100'000, '[')), InvalidArgument);
}

TEST(ChoicesFile, SavingKeepsOtherMachinesAndProblems) {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "new/choices.json";
  save_choices(file, choices_for("A", "sm90"));
  save_choices(file, choices_for("B", "sm90"));
  Choices more = choices_for("A", "portable");
  more.operators["resample"]["rows"] = {"ring", evening};
  more.operators["transform"]["mul f32"] = {"sm90", evening};
  save_choices(file, more);
  const std::vector<Choices> read = load_choices(file);
  EXPECT_EQ(read.size(), 2u);
  EXPECT_EQ(kernel_in(read, "A"), "portable");
  EXPECT_EQ(kernel_in(read, "B"), "sm90");
  Choices again = choices_for("A", "sm90");
  save_choices(file, again);
  for (const Choices& each : load_choices(file)) {
    if (each.key.device != "A") continue;
    EXPECT_EQ(each.find("transform", "mul f32")->date, evening);
    EXPECT_EQ(each.find("resample", "rows")->kernel, "ring");
  }
  // Nothing is left beside it.
  EXPECT_EQ(std::distance(fs::directory_iterator(file.parent_path()), {}), 1);
}

TEST(ChoicesFile, SavingReplacesADamagedFile) {
  const TemporaryDirectory folder;
  const fs::path file = folder.write("choices.json", "{\"schema\": 99}");
  EXPECT_THROW(load_choices(file), InvalidArgument);
  save_choices(file, choices_for("A", "sm90"));
  EXPECT_EQ(kernel_in(load_choices(file), "A"), "sm90");
}

TEST(ChoicesFile, ForgetsOneMachineOrOneOperatorOfIt) {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "choices.json";
  EXPECT_EQ(forget_choices(file, choices_for("A", "").key), 0u);
  Choices both = choices_for("A", "sm90");
  both.operators["resample"]["rows"] = {"ring", morning};
  save_choices(file, both);
  save_choices(file, choices_for("B", "sm90"));
  EXPECT_EQ(forget_choices(file, both.key, "iterate"), 0u);
  EXPECT_EQ(forget_choices(file, both.key, "resample"), 1u);
  EXPECT_EQ(kernel_in(load_choices(file), "A"), "sm90");
  EXPECT_EQ(forget_choices(file, both.key), 1u);
  EXPECT_EQ(kernel_in(load_choices(file), "A"), "none");
  EXPECT_EQ(kernel_in(load_choices(file), "B"), "sm90");
  EXPECT_EQ(forget_choices(file, choices_for("B", "").key), 1u);
  EXPECT_FALSE(fs::exists(file));
  folder.write("choices.json", "{");
  EXPECT_EQ(forget_choices(file, both.key), 0u);
  EXPECT_FALSE(fs::exists(file));
}

}  // namespace
}  // namespace ps
