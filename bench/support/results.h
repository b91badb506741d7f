// What a benchmark writes: one shape for all, so that tables, plots and checks read them alike.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "penstock/host/device.h"
#include "penstock/measure/limits.h"

namespace bench {

using Json = nlohmann::ordered_json;

class Results {
 public:
  // Stamps machine, date and commit.
  Results(std::string name, const ps::Device& device, const ps::Limits& ceilings);

  void peer(const std::string& name, const std::string& version) {
    document_["peers"][name] = version;
  }

  // A case that was checked for correctness in this run; others are not written. One that is faster
  // than its floor ("floor_us") allows goes into the list "dropped" instead, with the reason, which
  // is also printed. A peer or a yardstick ("yardstick_us", named by "yardstick") may be beaten.
  // True where the case was kept.
  bool add(Json checked_case);

  // Replaces the file; throws SystemError.
  void write(const std::filesystem::path& path) const;

  const Json& document() const { return document_; }

 private:
  Json document_;
};

double microseconds(double seconds);

}  // namespace bench
