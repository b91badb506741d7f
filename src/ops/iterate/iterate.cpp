#include "ops/iterate/iterate.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/ops/iterate.h"

namespace ps {
namespace {

void check_view(std::string_view argument, const TensorView& view, const Device& device) {
  if (view.dtype() != DType::f32) {
    detail::throw_invalid(argument, "elements of type f32", view.describe());
  }
  if (!view.is_contiguous()) {
    detail::throw_invalid(argument, "a contiguous view", view.describe() + " with strides");
  }
  if (view.elements() == 0) return;
  if (reinterpret_cast<std::uintptr_t>(view.data()) % alignof(float) != 0) {
    detail::throw_invalid(argument, "data aligned to 4 bytes", "an address that is not");
  }
  // On the CPU every memory but a GPU's is within reach.
  const bool reachable = device.kind() == DeviceKind::cpu ? view.place().memory != Memory::device ||
                                                                view.place().device == cpu_index
                                                          : view.place() == device.place();
  if (!reachable) {
    detail::throw_invalid(argument, "memory of " + device.name() + ", the stream's device",
                          view.describe());
  }
}

bool overlap_partly(const TensorView& a, const TensorView& b) {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data());
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data());
  return begin_a != begin_b && begin_a < begin_b + b.bytes() && begin_b < begin_a + a.bytes();
}

}  // namespace

void iterate(const IterateOptions& options, const Stream& stream) {
  const Device device = stream.device();
  check_view("in", options.in, device);
  check_view("out", options.out, device);
  if (options.out.elements() != options.in.elements()) {
    detail::throw_invalid("out", "as many elements as in, " + options.in.describe(),
                          options.out.describe());
  }
  if (overlap_partly(options.in, options.out)) {
    detail::throw_invalid("out", "the same memory as in, or memory that does not overlap it",
                          "a partial overlap");
  }
  if (options.rounds < 0) {
    detail::throw_invalid("rounds", "0 or more", std::to_string(options.rounds));
  }
  if (options.blocks < 0) {
    detail::throw_invalid("blocks", "0 or more", std::to_string(options.blocks));
  }
  if (options.in.elements() == 0) return;

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
