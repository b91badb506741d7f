// How rows about kernels are shown; no GPU is needed for that.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "support/ladder.h"

namespace {

const ladder::Instructions machine{.holds = {"LDG.128"}, .lacks = {"STS"}};

std::vector<ladder::Row> run(ladder::Context&) { return {}; }

const ladder::Rung rung{.ladder = "copy",
                        .file = "04_vectorised.cu",
                        .name = "vectorised",
                        .sentence = "16 bytes a load.",
                        .run = run,
                        .machine = &machine};

class KernelTable : public testing::Test {
 protected:
  void SetUp() override { context.add_fact({"bytes_per_second", "cudaMemcpy: 4.2 TB/s", 4.2e12}); }

  ladder::Context context{{.device = ps::Device::cpu(), .bytes = 4 * ps::MiB}};
};

std::vector<ladder::RungRows> results() {
  return {{rung,
           {{.label = "4 loads",
             .work = "balanced",
             .seconds = 0.5e-3,
             .speedup = 2.0,
             .efficiency = 0.97,
             .use = ladder::KernelUse{.registers = 32,
                                      .shared_bytes = 48 * ps::KiB,
                                      .threads = 256,
                                      .blocks = 8,
                                      .occupancy = 1.0}},
            {.label = "elsewhere", .work = "balanced", .note = "it needs a GPU"}}}};
}

TEST_F(KernelTable, ShowsWhatAKernelTakesAndWhatItsCodeHolds) {
  const std::string text = as_table(context, results());
  for (const char* part :
       {"cudaMemcpy: 4.2 TB/s", "vectorised: 16 bytes a load.", "machine code: LDG.128, no STS",
        "500 us", "0.97", "2.00x", "32", "48 KiB", "8 x 256", "it needs a GPU"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  EXPECT_EQ(text.find("upload"), std::string::npos) << "a kernel has no engines:\n" << text;
}

TEST_F(KernelTable, IsOneJsonObjectThatPagesAndTablesRead) {
  const auto json = nlohmann::json::parse(as_json(context, results()));
  EXPECT_EQ(json.at("facts").at("bytes_per_second"), 4.2e12);
  EXPECT_FALSE(json.contains("alone_seconds"));
  const auto& shown = json.at("rungs").at(0);
  EXPECT_EQ(shown.at("file"), "04_vectorised.cu");
  EXPECT_EQ(shown.at("machine").at("holds"), nlohmann::json::array({"LDG.128"}));
  const auto& rows = shown.at("rows");
  EXPECT_EQ(rows.at(0).at("kernel").at("registers"), 32);
  EXPECT_EQ(rows.at(0).at("kernel").at("shared_bytes"), 48 * ps::KiB);
  EXPECT_EQ(rows.at(0).at("efficiency"), 0.97);
  EXPECT_TRUE(rows.at(1).at("seconds").is_null());
  EXPECT_FALSE(rows.at(1).contains("kernel"));
}

TEST_F(KernelTable, KernelsNeedAGpu) {
  try {
    climb(context, {rung}, [](const auto&, double) {});
    FAIL() << "ran on the CPU";
  } catch (const ps::Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("'copy' needs a GPU: "), std::string::npos);
  }
}

struct Problem {
  explicit Problem(ladder::Context& context) : bytes(context.bytes()) { ++made; }
  std::size_t bytes;
  static inline int made = 0;
};

TEST_F(KernelTable, ALaddersProblemIsMadeOnce) {
  auto& first = context.shared<Problem>();
  EXPECT_EQ(first.bytes, 4 * ps::MiB);
  EXPECT_EQ(&context.shared<Problem>(), &first);
  EXPECT_EQ(Problem::made, 1);
}

}  // namespace
