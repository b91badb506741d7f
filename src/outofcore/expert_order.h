// Which layer comes after which, learned from the calls. Passes over a prompt and passes over
// single tokens are learned apart, because after the last layer of one another may follow or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ps::detail {

class ExpertOrder {
 public:
  static constexpr std::int64_t none = -1;

  explicit ExpertOrder(std::int64_t layers) {
    for (auto& next : next_) {
      for (std::int64_t layer = 0; layer < layers; ++layer) {
        next.push_back(layer + 1 < layers ? layer + 1 : none);
      }
    }
  }

  // A call of this layer; `whole`: of nearly all its experts.
  void called(std::int64_t layer, bool whole) {
    if (last_ != none) {
      next_[last_whole_ ? 1 : 0][static_cast<std::size_t>(last_)] =
          whole == last_whole_ ? layer : none;
    }
    last_ = layer;
    last_whole_ = whole;
  }

  // The layer that the next call is probably for, or none.
  std::int64_t after(std::int64_t layer, bool whole) const {
    return layer == none ? none : next_[whole ? 1 : 0][static_cast<std::size_t>(layer)];
  }

 private:
  std::vector<std::int64_t> next_[2];
  std::int64_t last_ = none;
  bool last_whole_ = false;
};

}  // namespace ps::detail
