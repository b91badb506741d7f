// ps::resample itself, with all that it can do besides: what a caller gets who climbs nothing. Its
// kernels lie in the library, not in this file.
#include "penstock/ops/resample.h"
#include "resample/support/rung.h"

namespace {

using namespace ladder::resample;

void run(const Work& work, const ps::Stream& stream) {
  const ps::Place place = stream.device().place();
  const std::int64_t b = work.episodes, s = work.samples, t = work.targets, d = work.columns;
  const auto view = [&](const auto* data, ps::DType type, auto... extent) {
    auto* const begin = const_cast<void*>(static_cast<const void*>(data));
    return ps::TensorView(begin, type, {extent...}, place);
  };
  ps::Sensor sensor{.values = view(work.values, work.type, b, s, d),
                    .times = view(work.times, ps::DType::f32, b, s)};
  if (work.lengths != nullptr) sensor.lengths = view(work.lengths, ps::DType::i32, b);
  ps::resample({.sensors = {sensor},
                .at = view(work.at, ps::DType::f32, b, t),
                .out = view(work.out, work.type, b, t, d)},
               stream);
}

std::vector<Kernel> kernels() { return {{.label = "ps::resample", .launch = {run, run}}}; }

const ladder::Instructions machine{};
PENSTOCK_RESAMPLE_RUNG("library",
                       "The library's own operator, timed in interleaved runs with every rung.",
                       machine, kernels);

}  // namespace
