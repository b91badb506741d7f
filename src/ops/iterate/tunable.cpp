#include "ops/tunable.h"

namespace ps::detail {

const Tunable& iterate_tunable() {
  static const Tunable tunable{
      .name = "iterate",
      .kernels = {"portable"},
      .problems = {"f32"},
      .candidates =
          [](std::size_t, const Device& device) {
            return std::vector<unsigned>(device.kind() == DeviceKind::cpu ? 0 : 1);
          },
      .trial = nullptr};
  return tunable;
}

}  // namespace ps::detail
