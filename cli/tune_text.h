// What `penstock tune` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "penstock/measure/tune.h"

namespace ps::cli {

// Tables of what was measured: an operator's problems with every kernel's time.
std::string tuning_text(const Tuning& tuning);
nlohmann::ordered_json tuning_json(const Tuning& tuning);

// What is used now and why.
std::string state_text(const TuneState& state);
nlohmann::ordered_json state_json(const TuneState& state);

// What there is to say of operators without a choice on this device; empty when all have one.
std::string nothing_to_choose(const TuneState& state, const Device& device);

}  // namespace ps::cli
