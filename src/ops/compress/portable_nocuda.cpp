#include "ops/arguments.h"
#include "ops/compress/work.h"

namespace ps::detail {

void decompress_portable(const DecompressWork&, const Stream& stream) {
  throw_no_cuda(stream.device(), "decompress");
}

}  // namespace ps::detail
