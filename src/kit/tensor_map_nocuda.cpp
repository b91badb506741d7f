#include "kit/tiled_map.h"
#include "penstock/base/error.h"

namespace ps::kit::detail {

TensorMap encode_tiled(const TiledMap& /*map*/, const TensorMapOptions& /*options*/) {
  throw Unsupported(
      "tensor maps need CUDA, and this build of Penstock has none; build it with a CUDA toolkit of "
      "12.8 or newer");
}

}  // namespace ps::kit::detail
