// A machine's key in the entries of cache files.
#pragma once

#include <nlohmann/json.hpp>

#include "base/reading.h"
#include "penstock/host/machine_key.h"

namespace ps::detail {

// Four fields of an entry; strict.
MachineKey parse_key(const Reading& entry);
nlohmann::ordered_json key_json(const MachineKey& key);

}  // namespace ps::detail
