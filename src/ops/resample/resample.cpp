#include "penstock/ops/resample.h"

#include "host/backend.h"
#include "ops/arguments.h"
#include "ops/resample/arguments.h"
#include "ops/resample/tunable.h"
#include "ops/resample/work.h"

namespace ps {
namespace resampling {
namespace {

using detail::on_cpu;
using detail::ResampleChecks;
using detail::ResampleWork;

void check_contents(const ResampleWork& work, ResampleChecks checks, bool of_sensors,
                    const Stream& stream) {
  if (!checks.times && !checks.outside) return;
  stream.impl().refuse_capture(
      "resample with `check`, which waits for its result,");  // it waits for what it finds
  const bool cpu = on_cpu(stream);
  throw_fault(cpu ? detail::check_resample_cpu(work, checks, stream)
                  : detail::check_resample_gpu(work, checks, stream),
              work, cpu, of_sensors);
}

}  // namespace
}  // namespace resampling

void resample(const ResampleOptions& options, const Stream& stream) {
  using namespace resampling;
  const Device device = stream.device();
  detail::ResampleWork work = checked(options, device);
  const bool writes = options.out.elements() > 0 || work.valid != nullptr;
  if (work.episodes == 0 || (!writes && !options.check)) return;
  detail::require_compute(device, "resample");
  check_contents(work, {options.check, options.outside == Outside::error}, true, stream);
  if (!writes || work.targets == 0) return;
  if (detail::on_cpu(stream)) return detail::resample_cpu(work, stream);
  work.kernel = detail::resample_kernel(work, device);
  detail::resample_gpu(work, stream);
}

void resample_gradient(const ResampleGradientOptions& options, const Stream& stream) {
  using namespace resampling;
  const Device device = stream.device();
  const detail::ResampleWork work = checked(options, device);
  if (options.out.elements() == 0) return;
  detail::require_compute(device, "resample_gradient");
  check_contents(work, {false, options.outside == Outside::error}, false, stream);
  return detail::on_cpu(stream) ? detail::resample_gradient_cpu(work, stream)
                                : detail::resample_gradient_gpu(work, stream);
}

}  // namespace ps
