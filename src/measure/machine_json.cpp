#include <nlohmann/json.hpp>

#include "penstock/measure/machine.h"

namespace ps {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json maybe(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json maybe(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json maybe_version(int version) {
  return version == 0 ? Json(nullptr) : Json(cuda_version_text(version));
}

Json link_json(const Link& link) {
  return {{"pci_address", link.pci_address},
          {"pcie_generation", maybe(link.pcie_generation)},
          {"pcie_width", maybe(link.pcie_width)},
          {"pcie_max_generation", maybe(link.pcie_max_generation)},
          {"pcie_max_width", maybe(link.pcie_max_width)}};
}

Json gpu_json(const GpuInfo& gpu) {
  const Capabilities& has = gpu.capabilities;
  return {{"index", gpu.index},
          {"name", has.name},
          {"compute_capability",
           std::to_string(has.compute_major) + "." + std::to_string(has.compute_minor)},
          {"multiprocessors", has.multiprocessors},
          {"copy_engines", has.copy_engines},
          {"memory_bytes", has.memory_bytes},
          {"free_bytes", has.free_bytes},
          {"l2_bytes", has.l2_bytes},
          {"numa_node", maybe(has.numa_node)},
          {"memory_pools", has.memory_pools},
          {"virtual_memory", has.virtual_memory},
          {"stream_wait_value", has.stream_wait_value},
          {"link", link_json(has.link)}};
}

Json host_json(const HostSystem& host) {
  return {{"os", host.os},
          {"kernel", host.kernel},
          {"cpu", host.cpu},
          {"cores", host.cores},
          {"numa_nodes", host.numa_nodes},
          {"memory_bytes", host.memory_bytes},
          {"available_bytes", host.available_bytes},
          {"memory_limit_bytes", maybe(host.memory_limit_bytes)},
          {"memlock_bytes", maybe(host.memlock_bytes)},
          {"memlock_exempt", host.memlock_exempt},
          {"huge_page_bytes", host.huge_page_bytes},
          {"huge_pages", host.huge_pages},
          {"huge_pages_free", host.huge_pages_free},
          {"transparent_huge_pages", maybe(host.transparent_huge_pages)},
          {"io_uring",
           {{"built_in", host.io_uring_built_in},
            {"allowed", host.io_uring_error == 0},
            {"error", host.io_uring_error},
            {"sysctl", maybe(host.io_uring_disabled)}}}};
}

Json cuda_json(const CudaInstallation& cuda) {
  return {{"built_in", cuda.built_in},
          {"toolkit", maybe_version(cuda.toolkit_version)},
          {"driver_supports", maybe_version(cuda.driver_cuda_version)},
          {"driver", maybe(cuda.driver)},
          {"why_no_gpu", maybe(cuda.why_no_gpu)},
          {"visible_devices", maybe(cuda.visible_devices)}};
}

}  // namespace

std::string as_json(const Machine& machine) {
  Json gpus = Json::array();
  for (const GpuInfo& gpu : machine.gpus) gpus.push_back(gpu_json(gpu));
  Json tools = Json::array();
  for (const Tool& tool : machine.tools) {
    tools.push_back({{"name", tool.name}, {"use", tool.use}, {"where", maybe(tool.where)}});
  }
  const Json all = {{"version", machine.version},
                    {"host", host_json(machine.host)},
                    {"cuda", cuda_json(machine.cuda)},
                    {"gpus", gpus},
                    {"tools", tools}};
  // File names and device names are bytes; what is not UTF-8 is replaced rather than thrown over.
  return all.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ps
