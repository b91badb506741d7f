#include "ops/iterate/iterate.h"

#include <cmath>
#include <string>

#include "ops/arguments.h"
#include "penstock/base/error.h"
#include "penstock/ops/iterate.h"

namespace ps {
void iterate(const IterateOptions& options, const Stream& stream) {
  const Device device = stream.device();
  const detail::Named in{"in", options.in}, out{"out", options.out};
  for (const detail::Named& each : {in, out}) {
    detail::check_type(each, {DType::f32});
    detail::check_contiguous(each);
    detail::check_memory(each, device);
  }
  if (options.out.elements() != options.in.elements()) {
    detail::throw_invalid("out", "as many elements as in, " + options.in.describe(),
                          detail::described(options.out));
  }
  detail::check_apart_or_in_place(out, in);
  if (options.rounds < 0) {
    detail::throw_invalid("rounds", "0 or more", std::to_string(options.rounds));
  }
  if (options.blocks < 0) {
    detail::throw_invalid("blocks", "0 or more", std::to_string(options.blocks));
  }
  if (options.in.elements() == 0) return;
  detail::require_compute(device, "iterate");

  const detail::IterateWork work{.in = static_cast<const float*>(options.in.data()),
                                 .out = static_cast<float*>(options.out.data()),
                                 .elements = static_cast<std::size_t>(options.in.elements()),
                                 .rounds = options.rounds,
                                 .blocks = options.blocks};
  if (device.kind() == DeviceKind::cpu) {
    detail::iterate_cpu(work, stream);
  } else {
    detail::iterate_portable(work, stream);
  }
}

float iterated(float x, int rounds) {
  for (int round = 0; round < rounds; ++round) x = std::fma(iterate_scale, x, iterate_shift);
  return x;
}

}  // namespace ps
