// penstock doctor: inspects this machine, measures its transfer rates, and says how to fix
// problems.
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "options.h"
#include "penstock/base/error.h"
#include "penstock/measure/limits_cache.h"
#include "penstock/measure/machine.h"
#include "penstock/measure/tune.h"
#include "program.h"
#include "progress.h"
#include "table.h"

namespace ps::cli {
namespace {

struct DoctorOptions {
  std::string device = "best";
  std::string directory;  // empty: default_directory()
  bool json = false;
  bool quick = false;
  bool fresh = false;
  bool no_measure = false;
};

struct Diagnosis {
  Machine machine;
  std::optional<LimitsAnswer> ceilings;
  std::vector<Finding> findings;
  std::vector<std::string> warnings;
};

// The current directory, because the user's data is probably on the same disk, or the temporary
// directory if the current one is not writable.
std::filesystem::path default_directory() {
  std::error_code error;
  auto here = std::filesystem::current_path(error);
  if (!error && access(here.c_str(), W_OK) == 0) return here;
  return std::filesystem::temp_directory_path();
}

LimitsAnswer measure(const DoctorOptions& options, const std::stop_token& stop,
                     std::vector<std::string>& warnings) {
  ProgressBar bar;
  LimitsRequest request{.measure = options.quick ? quick_limits() : LimitsOptions{},
                        .fresh = options.fresh,
                        .keep = !options.quick,  // rough figures are not worth keeping
                        .this_directory = !options.directory.empty()};
  request.measure.directory =
      options.directory.empty() ? default_directory() : std::filesystem::path(options.directory);
  request.measure.stop = stop;
  request.measure.progress = [&bar](const LimitsProgress& progress) {
    bar.update(progress.fraction, description(progress.ceiling));
  };
  const Device device = Device::parse(options.device);
  try {
    return obtain_limits(device, request);
  } catch (const SystemError& error) {
    if (request.this_directory) throw;
    // The user did not name this directory, so measure everything else if it cannot be written.
    warnings.push_back(fmt::format("the disk was not measured: {} (see --dir)", error.what()));
    request.measure.disk = false;
    return obtain_limits(device, request);
  }
}

// Measures first: an idle PCIe link may report a lower speed than one that was just used.
Diagnosis diagnose(const DoctorOptions& options, const std::stop_token& stop) {
  Diagnosis result;
  if (!options.no_measure) {
    result.ceilings = measure(options, stop, result.warnings);
    result.warnings.insert(result.warnings.end(), result.ceilings->warnings.begin(),
                           result.ceilings->warnings.end());
  }
  const TuneState choices = tune_state(Device::parse(options.device));
  result.warnings.insert(result.warnings.end(), choices.warnings.begin(), choices.warnings.end());
  result.machine = inspect_machine();
  result.findings = findings(result.machine);
  if (result.ceilings) {
    const auto more = findings(result.ceilings->limits, result.machine);
    result.findings.insert(result.findings.begin(), more.begin(), more.end());
  }
  return result;
}

std::string link_text(const Link& link) {
  if (!link.pcie_generation || !link.pcie_width) return {};
  return fmt::format(", PCIe {} x{}", *link.pcie_generation, *link.pcie_width);
}

std::string memlock_text(const HostSystem& host) {
  if (!host.memlock_bytes) return "unlimited";
  return format_bytes(*host.memlock_bytes) +
         (host.memlock_exempt ? ", which does not apply to this user" : "");
}

std::string io_uring_text(const HostSystem& host) {
  if (host.io_uring_error != 0) {
    return fmt::format("refused: {}", std::strerror(host.io_uring_error));
  }
  return host.io_uring_built_in ? "allowed" : "allowed by the system, but this build lacks it";
}

std::string cuda_text(const CudaInstallation& cuda) {
  if (!cuda.built_in) return "not built in";
  std::string text = fmt::format("built with {}", cuda_version_text(cuda.toolkit_version));
  if (cuda.driver_cuda_version == 0) return text + ", no driver";
  return text + fmt::format(", driver{}{} supports {}", cuda.driver.empty() ? "" : " ", cuda.driver,
                            cuda_version_text(cuda.driver_cuda_version));
}

void print_machine(const Machine& machine) {
  const HostSystem& host = machine.host;
  Table table({Align::left, Align::left});
  table.row({"penstock", machine.version});
  table.row({"system", fmt::format("{}, Linux {}", host.os, host.kernel)});
  table.row({"CPU", fmt::format("{}, {} core{}, {} NUMA node{}", host.cpu, host.cores,
                                host.cores == 1 ? "" : "s", host.numa_nodes,
                                host.numa_nodes == 1 ? "" : "s")});
  table.row({"memory", fmt::format("{}, {} available", format_bytes(host.memory_bytes),
                                   format_bytes(host.available_bytes))});
  table.row({"lockable", memlock_text(host)});
  table.row(
      {"huge pages",
       fmt::format("{} of {}, {} free; transparent: {}", host.huge_pages,
                   format_bytes(host.huge_page_bytes), host.huge_pages_free,
                   host.transparent_huge_pages.empty() ? "unknown" : host.transparent_huge_pages)});
  table.row({"io_uring", io_uring_text(host)});
  table.row({"CUDA", cuda_text(machine.cuda)});
  for (const GpuInfo& gpu : machine.gpus) {
    const Capabilities& has = gpu.capabilities;
    table.row({fmt::format("cuda:{}", gpu.index),
               fmt::format("{}, compute {}.{}, {} SMs, {} copy engines, {}{}", has.name,
                           has.compute_major, has.compute_minor, has.multiprocessors,
                           has.copy_engines, format_bytes(has.memory_bytes), link_text(has.link))});
  }
  for (const Tool& tool : machine.tools) {
    table.row({tool.name, tool.where.empty() ? "not found" : tool.where});
  }
  fmt::print("Machine\n{}", table.text());
}

void print_ceilings(const LimitsAnswer& answer) {
  const Limits& limits = answer.limits;
  Table table({Align::left, Align::right, Align::left});
  for (const Ceiling ceiling : all_ceilings) {
    const Rate* rate = limits.find(ceiling);
    if (rate == nullptr) continue;
    const bool disk = ceiling == Ceiling::disk_read || ceiling == Ceiling::disk_write;
    std::string note = disk ? limits.directory : "";
    if (!rate->note.empty()) note += (note.empty() ? "" : "; ") + rate->note;
    table.row({std::string(description(ceiling)), format_rate(rate->bytes_per_second), note});
  }
  fmt::print("\nCeilings of {}, {} {}{}\n{}", limits.key.device,
             answer.cached ? "cached from" : "measured", limits.date,
             answer.cached ? " (--fresh measures again)" : "", table.text());
}

void print_findings(const std::vector<Finding>& found) {
  fmt::print("\nFindings\n");
  if (found.empty()) fmt::print("  no problems found\n");
  for (const Finding& finding : found) {
    fmt::print("  {}: {}\n    why: {}\n    fix: {}\n", name(finding.severity), finding.what,
               finding.why, finding.fix);
  }
}

void print_text(const Diagnosis& diagnosis) {
  for (const std::string& warning : diagnosis.warnings) {
    fmt::print(stderr, "penstock: warning: {}\n", warning);
  }
  print_machine(diagnosis.machine);
  if (diagnosis.ceilings) print_ceilings(*diagnosis.ceilings);
  print_findings(diagnosis.findings);
}

void print_json(const Diagnosis& diagnosis) {
  using Json = nlohmann::ordered_json;
  Json found = Json::array();
  for (const Finding& finding : diagnosis.findings) {
    found.push_back({{"severity", name(finding.severity)},
                     {"what", finding.what},
                     {"why", finding.why},
                     {"fix", finding.fix}});
  }
  Json ceilings = nullptr;
  if (diagnosis.ceilings) {
    ceilings = Json::parse(as_json(diagnosis.ceilings->limits));
    ceilings["cached"] = diagnosis.ceilings->cached;
  }
  const Json all = {{"schema", 1},
                    {"machine", Json::parse(as_json(diagnosis.machine))},
                    {"ceilings", ceilings},
                    {"findings", found},
                    {"warnings", diagnosis.warnings}};
  fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

void add_doctor(Program& program) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App& command = *program.app().add_subcommand(
      "doctor", "Shows hardware, software and measured transfer rates, and how to fix problems");
  add_device_option(command, options->device);
  add_json_flag(command, options->json);
  command
      .add_option("--dir", options->directory,
                  "Directory on the disk to measure; default: the current one if it is writable, "
                  "else the temporary directory")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory.description(""));
  CLI::Option* quick =
      command.add_flag("--quick", options->quick,
                       "Measure in a quarter of the time, accurate to about 10 %; not cached");
  CLI::Option* fresh =
      command.add_flag("--fresh", options->fresh, "Measure again, even if cached rates exist");
  command
      .add_flag("--no-measure", options->no_measure,
                "Show hardware and software only; do not measure")
      ->excludes(quick)
      ->excludes(fresh);
  command.footer(
      "Measured rates are cached in limits.json, in the first of these folders that is set:\n"
      "$PENSTOCK_CACHE, $XDG_CACHE_HOME/penstock, ~/.cache/penstock.\n\n"
      "Examples:\n"
      "  penstock doctor                          inspect and measure this machine\n"
      "  penstock doctor --fresh --dir /data      measure again, with the disk of /data\n"
      "  penstock doctor --quick --json | jq .findings");
  command.callback([&program, options] {
    program.chosen([&program, options] {
      const Diagnosis diagnosis = diagnose(*options, program.stop());
      options->json ? print_json(diagnosis) : print_text(diagnosis);
    });
  });
}

}  // namespace ps::cli
