#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

#include "penstock/base/units.h"
#include "penstock/measure/limits.h"
#include "penstock/measure/machine.h"

namespace ps {
namespace {

// A machine about which there is nothing to say.
Machine healthy() {
  Machine machine;
  machine.host = {.os = "Some Linux",
                  .kernel = "6.1",
                  .cpu = "CPU",
                  .cores = 16,
                  .memory_bytes = 64 * GiB,
                  .available_bytes = 60 * GiB,
                  .memory_limit_bytes = {},
                  .memlock_bytes = {},
                  .transparent_huge_pages = "madvise",
                  .io_uring_built_in = true,
                  .io_uring_disabled = 0,
                  .nvidia_functions = 1};
  machine.cuda = {.built_in = true,
                  .toolkit_version = 13000,
                  .driver_cuda_version = 13000,
                  .driver = "580.65.06",
                  .why_no_gpu = {},
                  .visible_devices = {}};
  GpuInfo gpu;
  gpu.capabilities.name = "Test GPU";
  gpu.capabilities.compute_major = 9;
  gpu.capabilities.copy_engines = 3;
  gpu.capabilities.memory_pools = true;
  gpu.capabilities.link = {.pcie_generation = 5,
                           .pcie_width = 16,
                           .pcie_max_generation = 5,
                           .pcie_max_width = 16,
                           .pci_address = "0000:3b:00.0"};
  machine.gpus = {gpu};
  machine.tools = {{"CUPTI", "timelines", "libcupti.so.13"}, {"ncu", "counters", "/usr/bin/ncu"}};
  return machine;
}

TEST(Findings, AreNoneOnAHealthyMachine) {
  for (const Finding& finding : findings(healthy())) ADD_FAILURE() << finding.what;
}

struct Ill {
  const char* label;
  std::function<void(Machine&)> spoil;
  Severity severity;
  const char* what;
  const char* fix;
};

class OneFinding : public testing::TestWithParam<Ill> {};

TEST_P(OneFinding, SaysWhatWhyAndHowToFixIt) {
  Machine machine = healthy();
  GetParam().spoil(machine);
  const std::vector<Finding> found = findings(machine);
  ASSERT_EQ(found.size(), 1u) << (found.empty() ? "nothing" : found.back().what);
  EXPECT_EQ(found[0].severity, GetParam().severity);
  EXPECT_NE(found[0].what.find(GetParam().what), std::string::npos) << found[0].what;
  EXPECT_NE(found[0].fix.find(GetParam().fix), std::string::npos) << found[0].fix;
  EXPECT_NE(found[0].why, "");
}

Capabilities& gpu_of(Machine& machine) { return machine.gpus.at(0).capabilities; }

const Ill ills[] = {
    {"NoCuda",
     [](Machine& m) { m.gpus.clear(), m.cuda.built_in = false, m.host.nvidia_functions = 0; },
     Severity::advice, "has no CUDA", "-DPENSTOCK_CUDA=ON"},
    {"NoCudaButGpu", [](Machine& m) { m.gpus.clear(), m.cuda.built_in = false; }, Severity::problem,
     "has no CUDA", "-DPENSTOCK_CUDA=ON"},
    {"NoDriver", [](Machine& m) { m.gpus.clear(), m.cuda.driver_cuda_version = 0; },
     Severity::problem, "without its driver", "nvidia-smi"},
    {"NoGpu",
     [](Machine& m) {
       m.gpus.clear(), m.cuda.driver_cuda_version = 0, m.host.nvidia_functions = 0;
       m.cuda.why_no_gpu = "there is no driver";
     },
     Severity::advice, "there is no driver", "nvidia-smi"},
    {"OldDriver",
     [](Machine& m) {
       m.gpus.clear(), m.cuda.driver = "550.54", m.cuda.driver_cuda_version = 12040;
     },
     Severity::problem, "driver 550.54 supports CUDA 12.4, this build needs 13.0", "580"},
    {"HiddenGpu", [](Machine& m) { m.gpus.clear(), m.cuda.visible_devices = ""; },
     Severity::problem, "CUDA_VISIBLE_DEVICES is ''", "unset CUDA_VISIBLE_DEVICES"},
    {"OldGpu", [](Machine& m) { gpu_of(m).compute_major = 7; }, Severity::problem,
     "compute capability 7.0 is older than 8.0", "--device cpu"},
    {"NewGpu", [](Machine& m) { gpu_of(m).compute_major = 10; }, Severity::advice,
     "the driver compiles the kernels", "CUDA_CACHE_MAXSIZE"},
    {"OneCopyEngine", [](Machine& m) { gpu_of(m).copy_engines = 1; }, Severity::advice,
     "1 copy engine", "hardware"},
    {"NoPools", [](Machine& m) { gpu_of(m).memory_pools = false; }, Severity::advice,
     "no stream-ordered memory pools", "rings"},
    {"NarrowLink", [](Machine& m) { gpu_of(m).link.pcie_width = 8; }, Severity::problem,
     "the link has 8 of 16 lanes", "nvidia-smi -q -d PCIE"},
    {"SlowLink", [](Machine& m) { gpu_of(m).link.pcie_generation = 4; }, Severity::advice,
     "PCIe generation 4 of 5", "nvidia-smi -q -d PCIE"},
    {"FarNode", [](Machine& m) { m.host.numa_nodes = 2, gpu_of(m).numa_node = 1; },
     Severity::advice, "NUMA node 1 of 2", "numactl --cpunodebind=1 --membind=1"},
    {"Container", [](Machine& m) { m.host.memory_limit_bytes = 4 * GiB; }, Severity::advice,
     "4 GiB of 64 GiB", "--memory="},
    {"NoHugePages", [](Machine& m) { m.host.transparent_huge_pages = "never"; }, Severity::advice,
     "transparent huge pages", "transparent_hugepage/enabled"},
    {"IoUringSysctl",
     [](Machine& m) { m.host.io_uring_error = EPERM, m.host.io_uring_disabled = 2; },
     Severity::advice, "io_uring is refused", "sysctl kernel.io_uring_disabled=0"},
    {"IoUringSeccomp", [](Machine& m) { m.host.io_uring_error = EPERM; }, Severity::advice,
     "io_uring is refused", "seccomp"},
    {"IoUringMemlock",
     [](Machine& m) { m.host.io_uring_error = ENOMEM, m.host.memlock_bytes = 64 * KiB; },
     Severity::advice, "io_uring is refused", "/etc/security/limits.conf"},
    {"IoUringKernel", [](Machine& m) { m.host.io_uring_error = ENOSYS; }, Severity::advice,
     "io_uring is refused", "5.1"},
    {"IoUringBuild", [](Machine& m) { m.host.io_uring_built_in = false; }, Severity::advice,
     "no io_uring", "-DPENSTOCK_URING=ON"},
    {"NoCupti", [](Machine& m) { m.tools[0].where = ""; }, Severity::advice, "CUPTI was not found",
     "cuda-cupti-13-0"},
    {"NoNcu", [](Machine& m) { m.tools[1].where = ""; }, Severity::advice, "ncu was not found",
     "cuda-nsight-compute-13-0"},
};

INSTANTIATE_TEST_SUITE_P(Machine, OneFinding, testing::ValuesIn(ills),
                         [](const auto& one) { return std::string(one.param.label); });

// Nothing that the library does locks memory against this limit, unless io_uring says so.
TEST(Findings, AreSilentAboutALimitOnLockedMemoryThatNothingMeets) {
  Machine machine = healthy();
  machine.host.memlock_bytes = 64 * KiB;
  EXPECT_TRUE(findings(machine).empty());
  machine.host.io_uring_error = ENOMEM;
  machine.host.memlock_exempt = true;
  for (const Finding& finding : findings(machine)) {
    EXPECT_EQ(finding.fix.find("memlock"), std::string::npos) << finding.fix;
  }
}

TEST(Findings, AreSilentAboutALinkThatTheSystemDoesNotTell) {
  Machine machine = healthy();
  gpu_of(machine).link = {};
  EXPECT_TRUE(findings(machine).empty());
}

TEST(Findings, AreSilentAboutGpuToolsWithoutAGpu) {
  Machine machine = healthy();
  machine.gpus.clear();
  machine.cuda.built_in = false;
  machine.tools[0].where = "";
  EXPECT_EQ(findings(machine).size(), 1u);
}

TEST(Findings, PutProblemsFirst) {
  Machine machine = healthy();
  gpu_of(machine).copy_engines = 1;
  gpu_of(machine).compute_major = 7;
  const std::vector<Finding> found = findings(machine);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].severity, Severity::problem);
  EXPECT_EQ(found[1].severity, Severity::advice);
}

TEST(LimitsFindings, CompareUploadsWithTheLink) {
  Limits limits;
  limits.key.device = "Test GPU";
  limits.rates[Ceiling::h2d] = {.bytes_per_second = 55e9, .bytes = 1, .repetitions = 7, .note = {}};
  EXPECT_TRUE(findings(limits, healthy()).empty());

  limits.rates[Ceiling::h2d].bytes_per_second = 25e9;
  const std::vector<Finding> found = findings(limits, healthy());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].what.find("25 GB/s of the link's 63"), std::string::npos) << found[0].what;

  Machine unknown = healthy();
  gpu_of(unknown).link = {};
  EXPECT_TRUE(findings(limits, unknown).empty());
  limits.key.device = "another";
  EXPECT_TRUE(findings(limits, healthy()).empty());
}

}  // namespace
}  // namespace ps
