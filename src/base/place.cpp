#include "penstock/base/place.h"

#include <fmt/format.h>

namespace ps {

std::string name(Place place) {
  switch (place.memory) {
    case Memory::host:
      return "host";
    case Memory::pinned:
      return "pinned";
    case Memory::device:
      return place.device == cpu_index ? "cpu" : fmt::format("cuda:{}", place.device);
  }
  return "unknown";
}

}  // namespace ps
