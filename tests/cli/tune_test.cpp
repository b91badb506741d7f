#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "penstock.h"
#include "penstock/ops/choices.h"
#include "tune_text.h"

namespace ps::test {
namespace {

using Json = nlohmann::json;

constexpr auto date = "2026-11-15T08:30:00Z";

std::filesystem::path file_of(const Penstock& penstock) {
  return penstock.cache() / "choices.json";
}

// Choices of a key, as if measured: on the CPU nothing is.
void keep(const Penstock& penstock, const MachineKey& key) {
  Choices choices{.key = key, .operators = {}};
  choices.operators["transform"]["mul f32"] = {"sm90", date};
  choices.operators["iterate"]["f32"] = {"portable", date};
  save_choices(file_of(penstock), choices);
}

TEST(TuneCommand, SaysThatTheCpuHasNothingToChooseAndKeepsNothing) {
  const Penstock penstock;
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--quick"}, {"--dry-run"}, {"--list"}, {"transform"}}) {
    std::vector<std::string> arguments = {"tune", "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = penstock(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.err, "");
    EXPECT_EQ(ended.out.rfind("cpu: operators have one implementation on the CPU", 0), 0u)
        << ended.out;
  }
  EXPECT_TRUE(std::filesystem::is_empty(penstock.cache()));
}

TEST(TuneCommand, ListsEveryProblem) {
  const Json json = Json::parse(Penstock()({"tune", "--list", "--json", "--device", "cpu"}).out);
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["device"], "cpu");
  std::size_t transforms = 0;
  for (const Json& each : json["problems"]) {
    EXPECT_TRUE(each["kernels"].empty());
    EXPECT_TRUE(each["used"].is_null());
    if (each["operator"] == "transform") ++transforms;
  }
  EXPECT_GT(transforms, 30u);
  const Json measured = Json::parse(Penstock()({"tune", "--json", "--device", "cpu"}).out);
  EXPECT_TRUE(measured["problems"].empty());
  EXPECT_TRUE(measured["kept"].is_null());
}

TEST(TuneCommand, ForgetsWhatWasMeasuredOnThisDevice) {
  const Penstock penstock;
  const MachineKey here = machine_key(Device::cpu());
  MachineKey elsewhere = here;
  elsewhere.version = "0.0.1";
  keep(penstock, here);
  keep(penstock, elsewhere);
  EXPECT_EQ(penstock({"tune", "iterate", "--reset", "--device", "cpu"}).out,
            "1 measured choice for cpu forgotten; the built-in choices are used\n");
  const Ended ended = penstock({"tune", "--reset", "--device", "cpu", "--json"});
  EXPECT_EQ(Json::parse(ended.out)["forgotten"], 1);
  const std::vector<Choices> left = load_choices(file_of(penstock));
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].key, elsewhere);
  EXPECT_EQ(penstock({"tune", "--reset", "--device", "cpu"}).out,
            "0 measured choices for cpu forgotten; the built-in choices are used\n");
}

TEST(TuneCommand, ReportsADamagedFileAndResetRemovesIt) {
  const Penstock penstock;
  std::ofstream(file_of(penstock)) << "{\"schema\": 7, \"entries\": []}";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"tune", "--list"}, {"tune"}, {"doctor", "--no-measure"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--device", "cpu"});
    const Ended ended = penstock(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.err.rfind("penstock: warning: using the built-in choices", 0), 0u) << ended.err;
    EXPECT_NE(ended.err.find("choices.schema"), std::string::npos) << ended.err;
  }
  EXPECT_EQ(penstock({"tune", "--reset", "--device", "cpu"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(file_of(penstock)));
  EXPECT_EQ(penstock({"tune", "--list", "--device", "cpu"}).err, "");
}

TEST(TuneText, HasEveryKernelsTimeAndWhatWasChosen) {
  Tuning tuning{.key = {"GPU", "1", "CPU", "0"}, .date = date, .problems = {}};
  tuning.problems.push_back({.op = "transform",
                             .problem = "mul f32",
                             .times = {{"sm90", 50e-6, 1.02}, {"portable", 48e-6, 1.0625}},
                             .chosen = "portable",
                             .gain = 0.0417,
                             .noise = 0.003});
  tuning.problems.push_back({.op = "transform",
                             .problem = "scale f16",
                             .times = {{"portable", 40e-6, 0.99}},
                             .chosen = "portable",
                             .unfit = {"sm90"}});
  EXPECT_EQ(cli::tuning_text(tuning),
            "transform on GPU: time per call, and its rate as a share of the device copy rate\n"
            "  problem         portable           sm90  chosen    built in          gain\n"
            "  mul f32    48.0 us 1.062  50.0 us 1.020  portable  sm90      +4.2% ± 0.3%\n"
            "  scale f16  40.0 us 0.990        differs  portable  portable\n");
  const auto json = cli::tuning_json(tuning);
  EXPECT_EQ(json[0]["kernels"]["portable"]["copy_share"], 1.0625);
  EXPECT_EQ(json[0]["built_in"], "sm90");
  EXPECT_EQ(json[1]["other_bits"][0], "sm90");
}

TEST(TuneText, SaysWhatIsUsedAndWhy) {
  const TuneState state{
      .problems = {{.op = "iterate", .problem = "f32", .kernels = {"portable"}, .used = "portable"},
                   {.op = "transform",
                    .problem = "add2 f32",
                    .kernels = {"sm90", "portable"},
                    .used = "sm90"},
                   {.op = "transform",
                    .problem = "mul f32",
                    .kernels = {"sm90", "portable"},
                    .used = "portable",
                    .measured = date}},
      .warnings = {}};
  EXPECT_EQ(cli::state_text(state),
            "transform\n"
            "  problem   used      why                            kernels\n"
            "  add2 f32  sm90      built in                       sm90, portable\n"
            "  mul f32   portable  measured 2026-11-15T08:30:00Z  sm90, portable\n");
}

}  // namespace
}  // namespace ps::test
