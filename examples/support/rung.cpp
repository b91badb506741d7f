#include "support/rung.h"

#include <algorithm>

namespace ladder {
namespace {

// Inside a function, so that it exists before the first file registers.
std::vector<Rung>& registered() {
  static std::vector<Rung> all;
  return all;
}

}  // namespace

detail::Registration::Registration(const Rung& rung) {
  Rung mine = rung;
  mine.file.remove_prefix(mine.file.find_last_of('/') + 1);
  registered().push_back(mine);
}

std::vector<Rung> rungs() {
  std::vector<Rung> ordered = registered();
  std::ranges::sort(ordered, {}, &Rung::file);
  return ordered;
}

}  // namespace ladder
