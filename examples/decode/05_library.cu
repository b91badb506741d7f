// ps::attention itself, the operator that users call, for comparison with the rungs. Its kernels
// are in the library, not in this file.
#include "decode/support/library.h"
#include "decode/support/rung.h"

namespace {

using namespace ladder::decode;

void run(const Problem& p, const ps::Stream& stream) {
  ps::attention(library_options(p, stream.device().place()), stream);
}

std::vector<Variant> variants() {
  return {{.label = "bf16", .run = run}, {.label = "bf16, pages", .paged = true, .run = run}};
}

const ladder::Instructions machine{};
PENSTOCK_DECODE_RUNG("library",
                     "The library's own operator, timed in interleaved runs with every rung.",
                     machine, variants);

}  // namespace
