#include <algorithm>
#include <string_view>

#include "gpu/mistakes/mistake.h"

namespace ps::lesson {
namespace {

std::vector<Mistake>& all() {
  static std::vector<Mistake> known;
  return known;
}

}  // namespace

bool add(const Mistake& mistake) {
  all().push_back(mistake);
  return true;
}

std::vector<Mistake> mistakes() {
  std::vector<Mistake> sorted = all();
  std::sort(sorted.begin(), sorted.end(), [](const Mistake& a, const Mistake& b) {
    const bool a_last = a.shows == Shows::loses_device, b_last = b.shows == Shows::loses_device;
    return a_last != b_last ? b_last : std::string_view(a.name) < b.name;
  });
  return sorted;
}

}  // namespace ps::lesson
