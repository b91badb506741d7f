#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "penstock/base/units.h"
#include "penstock/measure/machine.h"

namespace ps {
namespace {

using Findings = std::vector<Finding>;

constexpr int oldest_major = 8;           // the portable kernels' oldest GPUs
constexpr int newest_compiled_major = 9;  // newer ones run the portable PTX

// The driver each CUDA release came with; a driver of the same major release or newer will do.
const char* oldest_driver(int toolkit_version) {
  return toolkit_version / 1000 >= 13 ? "580" : "525";
}

void look_for_gpu(const Machine& machine, Findings& found) {
  const CudaInstallation& cuda = machine.cuda;
  if (!machine.gpus.empty()) return;
  const std::string_view why = "work runs on the CPU";
  const bool hardware = machine.host.nvidia_functions > 0;
  if (!cuda.built_in) {
    found.push_back({hardware ? Severity::problem : Severity::advice,
                     "this build of Penstock has no CUDA", std::string(why),
                     "install the CUDA toolkit, 12.8 or newer, then: cmake -B build "
                     "-DPENSTOCK_CUDA=ON && cmake --build build"});
  } else if (cuda.visible_devices && cuda.driver_cuda_version != 0) {
    found.push_back(
        {Severity::problem,
         fmt::format("no GPU is visible, and CUDA_VISIBLE_DEVICES is '{}'", *cuda.visible_devices),
         std::string(why), "unset CUDA_VISIBLE_DEVICES"});
  } else if (cuda.driver_cuda_version != 0 &&
             cuda.driver_cuda_version / 1000 < cuda.toolkit_version / 1000) {
    found.push_back(
        {Severity::problem,
         fmt::format("the driver {} supports CUDA {}, this build needs {}", cuda.driver,
                     cuda_version_text(cuda.driver_cuda_version),
                     cuda_version_text(cuda.toolkit_version / 1000 * 1000)),
         std::string(why),
         fmt::format("install NVIDIA driver {} or newer: https://www.nvidia.com/drivers",
                     oldest_driver(cuda.toolkit_version))});
  } else if (hardware && cuda.driver_cuda_version == 0) {
    found.push_back({Severity::problem, "an NVIDIA GPU without its driver", std::string(why),
                     fmt::format("install NVIDIA driver {} or newer (in a container: docker run "
                                 "--gpus all), then check with: nvidia-smi",
                                 oldest_driver(cuda.toolkit_version))});
  } else {
    found.push_back({Severity::advice, fmt::format("no usable GPU: {}", cuda.why_no_gpu),
                     std::string(why),
                     "on a machine with an NVIDIA GPU check with: nvidia-smi (in a container start "
                     "it with: docker run --gpus all)"});
  }
}

void look_at_link(const GpuInfo& gpu, const std::string& label, Findings& found) {
  const Link& link = gpu.capabilities.link;
  const auto below = [](const std::optional<int>& now, const std::optional<int>& most) {
    return now && most && *now < *most;
  };
  if (below(link.pcie_width, link.pcie_max_width)) {
    found.push_back({Severity::problem,
                     fmt::format("{}: the link has {} of {} lanes", label, *link.pcie_width,
                                 *link.pcie_max_width),
                     fmt::format("copies reach {:.0f}% of their speed",
                                 100.0 * *link.pcie_width / *link.pcie_max_width),
                     fmt::format("move the card to a slot with {} lanes, or allow them in the "
                                 "firmware's settings; check with: nvidia-smi -q -d PCIE",
                                 *link.pcie_max_width)});
  }
  if (below(link.pcie_generation, link.pcie_max_generation)) {
    found.push_back(
        {Severity::advice,
         fmt::format("{}: the link runs at PCIe generation {} of {}", label, *link.pcie_generation,
                     *link.pcie_max_generation),
         "each generation halves the copy rate, unless the GPU was idle: "
         "some GPUs lower their link speed when idle",
         "check again while copies run: nvidia-smi -q -d PCIE; if it stays low, set the "
         "slot's generation in the firmware's settings"});
  }
}

void look_at_gpu(const GpuInfo& gpu, const Machine& machine, Findings& found) {
  const Capabilities& has = gpu.capabilities;
  const std::string label = fmt::format("cuda:{} ({})", gpu.index, has.name);
  if (has.compute_major < oldest_major) {
    found.push_back({Severity::problem,
                     fmt::format("{}: compute capability {}.{} is older than {}.0", label,
                                 has.compute_major, has.compute_minor, oldest_major),
                     "copies work, the operators' kernels do not run",
                     "choose another device, such as the CPU: --device cpu"});
  } else if (has.compute_major > newest_compiled_major) {
    found.push_back({Severity::advice,
                     fmt::format("{}: the driver compiles the kernels for compute capability {}.{}",
                                 label, has.compute_major, has.compute_minor),
                     "the first run takes some seconds longer; later runs use ~/.nv/ComputeCache",
                     "give the cache enough room: export CUDA_CACHE_MAXSIZE=4294967296"});
  }
  if (has.copy_engines < 2) {
    found.push_back(
        {Severity::advice,
         fmt::format("{}: {} copy engine{}", label, has.copy_engines,
                     has.copy_engines == 1 ? "" : "s"),
         "uploads and downloads run one after the other instead of at the same time",
         "no fix: this is a limit of the hardware; expect the both-ways figure to equal "
         "the one-way figure"});
  }
  if (!has.memory_pools) {
    found.push_back({Severity::advice, label + ": no stream-ordered memory pools",
                     "pipeline stages cannot allocate scratch memory",
                     "no fix: this is a limit of the hardware or its virtualisation; use rings"});
  }
  look_at_link(gpu, label, found);
  if (machine.host.numa_nodes > 1 && has.numa_node) {
    found.push_back({Severity::advice,
                     fmt::format("{}: attached to NUMA node {} of {}", label, *has.numa_node,
                                 machine.host.numa_nodes),
                     "copies from another node's memory are slower",
                     fmt::format("numactl --cpunodebind={0} --membind={0} penstock doctor --fresh",
                                 *has.numa_node)});
  }
}

void look_at_memory(const HostSystem& host, Findings& found) {
  if (host.memory_limit_bytes) {
    found.push_back(
        {Severity::advice,
         fmt::format("this container may use {} of {} memory",
                     format_bytes(*host.memory_limit_bytes), format_bytes(host.memory_bytes)),
         "page-locked buffers count against the limit",
         "start the container with more: docker run --memory=..."});
  }
  if (host.transparent_huge_pages == "never") {
    found.push_back({Severity::advice, "transparent huge pages are off",
                     "page-locking large buffers takes longer",
                     "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"});
  }
}

void look_at_io_uring(const HostSystem& host, Findings& found) {
  const std::string why = "reads from disk use a pool of threads, which costs more CPU time";
  if (!host.io_uring_built_in) {
    found.push_back({Severity::advice, "this build of Penstock has no io_uring", why,
                     "sudo apt install liburing-dev, then: cmake -B build -DPENSTOCK_URING=ON && "
                     "cmake --build build"});
    return;
  }
  if (host.io_uring_error == 0) return;
  std::string fix;
  if (host.io_uring_disabled.value_or(0) != 0) {
    fix = "sudo sysctl kernel.io_uring_disabled=0";
  } else if (host.io_uring_error == ENOSYS) {
    fix = "use Linux 5.1 or newer; in a container: docker run --security-opt seccomp=unconfined";
  } else if (host.io_uring_error == ENOMEM && host.memlock_bytes && !host.memlock_exempt) {
    // Before Linux 5.12 the queues count against the limit on locked memory.
    fix = fmt::format(
        "raise the limit on locked memory, {}: echo \"$USER - memlock unlimited\" | sudo tee -a "
        "/etc/security/limits.conf, then log in again; for this shell: sudo prlimit --pid $$ "
        "--memlock=unlimited",
        format_bytes(*host.memlock_bytes));
  } else {
    fix = "in a container: docker run --security-opt seccomp=unconfined";
  }
  found.push_back({Severity::advice,
                   fmt::format("io_uring is refused: {}", std::strerror(host.io_uring_error)), why,
                   fix});
}

// A finding's words for a tool that is missing; tools are of use only where there is a GPU.
void look_for_tools(const Machine& machine, Findings& found) {
  if (machine.gpus.empty()) return;
  const auto package = [&](std::string_view stem) {
    const int version = machine.cuda.toolkit_version;
    return fmt::format("sudo apt install {}-{}-{}", stem, version / 1000, version % 1000 / 10);
  };
  for (const Tool& tool : machine.tools) {
    if (!tool.where.empty()) continue;
    Finding finding{Severity::advice, tool.name + " was not found", "there will be no " + tool.use,
                    ""};
    if (tool.name == "CUPTI") finding.fix = package("cuda-cupti");
    if (tool.name == "NVML") finding.fix = "sudo apt install libnvidia-ml1";
    if (tool.name == "ncu") finding.fix = package("cuda-nsight-compute");
    if (tool.name == "compute-sanitizer") finding.fix = package("cuda-sanitizer");
    found.push_back(finding);
  }
}

}  // namespace

std::vector<Finding> findings(const Machine& machine) {
  Findings found;
  look_for_gpu(machine, found);
  for (const GpuInfo& gpu : machine.gpus) look_at_gpu(gpu, machine, found);
  look_at_memory(machine.host, found);
  look_at_io_uring(machine.host, found);
  look_for_tools(machine, found);
  std::stable_partition(found.begin(), found.end(), [](const Finding& finding) {
    return finding.severity == Severity::problem;
  });
  return found;
}

}  // namespace ps
