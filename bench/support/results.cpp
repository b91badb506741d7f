#include "support/results.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "penstock/base/text_file.h"
#include "penstock/measure/build.h"
#include "penstock/measure/floor.h"
#include "penstock/measure/machine.h"

namespace bench {

double microseconds(double seconds) { return std::round(seconds * 1e9) * 1e-3; }

Results::Results(std::string name, const ps::Device& device, const ps::Limits& ceilings) {
  const ps::Machine machine = ps::inspect_machine();
  Json rates = Json::object();
  for (const auto& [ceiling, rate] : ceilings.rates) {
    rates[std::string(ps::name(ceiling)) + "_GBps"] =
        std::round(rate.bytes_per_second * 1e-7) * 1e-2;
  }
  document_ = {
      {"schema", 1},
      {"name", std::move(name)},
      {"date", ceilings.date},
      {"commit", ps::build_info().commit},
      {"machine",
       {{"gpu", device.kind() == ps::DeviceKind::cuda ? device.capabilities().name : "none"},
        {"driver", machine.cuda.driver},
        {"cuda", ps::build_info().cuda},
        {"cpu", machine.host.cpu},
        {"ceilings", rates}}},
      {"peers", Json::object()},
      {"cases", Json::array()},
      {"dropped", Json::array()}};
}

bool Results::add(Json checked_case) {
  if (checked_case.contains("floor_us")) {
    const Json& ours = checked_case["ours"];
    const double us = ours.contains("gpu_us") ? ours["gpu_us"] : ours["call_us"];
    const double floor_us = checked_case["floor_us"];
    const ps::FloorVerdict verdict = ps::judge_by_floor(us * 1e-6, floor_us * 1e-6);
    if (!verdict.kept()) {
      const std::string name = checked_case["case"];
      fmt::print("dropped: {}: {}\n", name, verdict.reason);
      document_["dropped"].push_back(
          {{"case", name}, {"reason", verdict.reason}, {"us", us}, {"floor_us", floor_us}});
      return false;
    }
  }
  document_["cases"].push_back(std::move(checked_case));
  return true;
}

void Results::write(const std::filesystem::path& path) const {
  ps::write_text(path, document_.dump(1) + "\n");
}

}  // namespace bench
