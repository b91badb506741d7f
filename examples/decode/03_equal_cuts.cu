// The blocks of keys of all sequences and heads lie in one line, which is cut into as many equal
// parts as blocks of threads fit on the GPU. All of them finish at the same time, whatever the
// lengths of the sequences. A part that begins or ends inside a sequence leaves a partial result,
// and a second kernel combines these in the order of the keys.
#include "decode/support/equal_cuts.cuh"

namespace {

using namespace ladder::decode;

std::vector<Variant> variants() {
  return {{.label = "bf16",
           .run = run_equal_cuts<ContiguousRows>,
           .use = use_of<compute_part<ContiguousRows>>}};
}

const ladder::Instructions machine{.holds = {"HMMA.16816", "LDGSTS.128", "REDUX.SUM"}};
PENSTOCK_DECODE_RUNG("equal-cuts",
                     "All blocks get the same number of keys, whatever the sequence lengths.",
                     machine, variants);

}  // namespace
