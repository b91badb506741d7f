// Engines by the names that Python uses.
#pragma once

#include <string>

#include "penstock/base/error.h"
#include "penstock/base/recorder.h"

namespace ps::python {

inline Engine engine_from(const std::string& text) {
  if (const auto engine = engine_named(text)) return *engine;
  throw InvalidArgument("engine", "disk, host, upload, download, device copy or compute",
                        "'" + text + "'");
}

}  // namespace ps::python
