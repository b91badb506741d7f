#include "support/rung.h"

#include <algorithm>
#include <tuple>

namespace ladder {
namespace {

// Inside a function, so that it exists before the first file registers.
std::vector<Rung>& registered() {
  static std::vector<Rung> all;
  return all;
}

}  // namespace

detail::Registration::Registration(std::string_view path, Rung rung) {
  const auto cut_last = [&path] {
    const std::size_t slash = path.find_last_of('/');
    const std::string_view last = path.substr(slash + 1);
    path = path.substr(0, slash == path.npos ? 0 : slash);
    return last;
  };
  rung.file = cut_last();
  rung.ladder = cut_last();
  registered().push_back(rung);
}

std::vector<Rung> rungs() {
  std::vector<Rung> ordered = registered();
  std::ranges::sort(ordered, [](const Rung& a, const Rung& b) {
    return std::tie(a.ladder, a.file) < std::tie(b.ladder, b.file);
  });
  return ordered;
}

}  // namespace ladder
