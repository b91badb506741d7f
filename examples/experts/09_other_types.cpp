// The same pipeline with the portable kernels, and with f32 weights of 14336 x 4096, twice the
// bytes and without tensor cores for them: the ratio of loading to computing changes.
#include "experts/support/layers.h"

namespace {

ladder::Row measured(ladder::Context& context, const std::string& label,
                     const ladder::LayersOptions& options) {
  ladder::Layers layers(context, options);
  ladder::Row row = layers.measure_pipeline(label);
  row.work = label;  // other work than that of the other rows
  return row;
}

std::vector<ladder::Row> run(ladder::Context& context) {
  const bool large = context.on_gpu() && !context.quick();
  ladder::LayersOptions f32{.dtype = ps::DType::f32};
  if (large) f32.shape = {4096, 4096, 14336, 8, 2};
  return {measured(context, "portable kernels", {.kernel = ps::MoeKernel::portable}),
          measured(context, large ? "f32, 14336 x 4096" : "f32", f32)};
}

PENSTOCK_RUNG("other-types",
              "Experts computed by the portable kernels, and experts of f32 weights.", run);

}  // namespace
