#include "penstock/measure/machine.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "fake/fake_driver.h"
#include "host/runtime.h"
#include "measure/machine_tools.h"
#include "penstock/measure/build.h"
#include "support/temporary_directory.h"

namespace ps {
namespace {

TEST(Machine, OfThisComputerIsWhole) {
  const Machine machine = inspect_machine();
  EXPECT_EQ(machine.version, build_info().version);
  EXPECT_GE(machine.host.cores, 1);
  EXPECT_EQ(machine.gpus.empty(), !machine.cuda.why_no_gpu.empty());
  for (const Finding& finding : findings(machine)) {
    EXPECT_NE(finding.what, "");
    EXPECT_NE(finding.why, "") << finding.what;
    EXPECT_NE(finding.fix, "") << finding.what;
  }
}

TEST(Machine, ShowsEveryGpuThatTheDriverHas) {
  auto driver = std::make_shared<test::FakeDriver>(
      test::FakeOptions{.devices = 2,
                        .driver_version = 13010,
                        .adjust = [](int device, cuda::Properties& properties) {
                          properties.name = "GPU number " + std::to_string(device);
                          properties.copy_engines = 1 + device;
                        }});
  detail::replace_driver(driver);
  const Machine machine = inspect_machine();
  detail::replace_driver(nullptr);

  EXPECT_EQ(machine.cuda.driver_cuda_version, 13010);
  EXPECT_EQ(machine.cuda.toolkit_version, 13000);
  EXPECT_EQ(machine.cuda.why_no_gpu, "");
  ASSERT_EQ(machine.gpus.size(), 2u);
  EXPECT_EQ(machine.gpus[1].index, 1);
  EXPECT_EQ(machine.gpus[1].capabilities.name, "GPU number 1");
  EXPECT_EQ(machine.gpus[1].capabilities.copy_engines, 2);

  const auto json = nlohmann::json::parse(as_json(machine));
  EXPECT_EQ(json["cuda"]["driver_supports"], "13.1");
  EXPECT_EQ(json["gpus"].size(), 2u);
  EXPECT_EQ(json["gpus"][0]["name"], "GPU number 0");
}

TEST(MachineJson, HasNullForWhatIsUnknown) {
  Machine machine;
  machine.gpus.push_back({});
  machine.tools.push_back({"ncu", "counters", ""});
  const auto json = nlohmann::json::parse(as_json(machine));
  EXPECT_TRUE(json["host"]["memlock_bytes"].is_null());
  EXPECT_TRUE(json["cuda"]["toolkit"].is_null());
  EXPECT_TRUE(json["gpus"][0]["link"]["pcie_width"].is_null());
  EXPECT_TRUE(json["tools"][0]["where"].is_null());
  EXPECT_EQ(json["host"]["io_uring"]["allowed"], true);
}

TEST(MachineJson, SurvivesBytesThatAreNoText) {
  Machine machine;
  machine.host.cpu = "CPU \xff\xfe";
  EXPECT_FALSE(nlohmann::json::parse(as_json(machine)).empty());
}

TEST(CudaVersionText, SplitsTheNumber) {
  EXPECT_EQ(cuda_version_text(13000), "13.0");
  EXPECT_EQ(cuda_version_text(12080), "12.8");
  EXPECT_EQ(cuda_version_text(13020), "13.2");
}

TEST(FindProgram, TakesTheFirstExecutableOnThePath) {
  const test::TemporaryDirectory root;
  root.write("a/tool", "not executable");
  const auto second = root.write("b/tool", "#!/bin/sh\n");
  root.write("c/tool", "#!/bin/sh\n");
  std::filesystem::create_directories(root.path() / "d/tool");
  chmod(second.c_str(), 0755);
  chmod((root.path() / "c/tool").c_str(), 0755);
  const std::string at = root.path().string();
  EXPECT_EQ(detail::find_program("tool", at + "/d:" + at + "/a::" + at + "/b:" + at + "/c"),
            second.string());
  EXPECT_EQ(detail::find_program("tool", at + "/a"), "");
  EXPECT_EQ(detail::find_program("tool", at + "/d"), "");
  EXPECT_EQ(detail::find_program("tool", ""), "");
}

}  // namespace
}  // namespace ps
