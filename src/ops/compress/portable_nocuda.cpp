#include "ops/arguments.h"
#include "ops/compress/work.h"

namespace ps::detail {

void decompress_portable(const DecompressWork&, const Stream& stream) {
  throw_no_cuda(stream.device(), "decompress");
}

void load_decompress_portable(const Device& device) { throw_no_cuda(device, "decompress"); }

}  // namespace ps::detail
