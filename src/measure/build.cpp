#include "penstock/measure/build.h"

#include "penstock/version.h"
#include "penstock_build.h"

namespace ps {

BuildInfo build_info() {
  return {PENSTOCK_VERSION, PENSTOCK_BUILD_COMMIT, PENSTOCK_BUILD_COMPILER, PENSTOCK_BUILD_CUDA};
}

}  // namespace ps
