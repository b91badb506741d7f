#include "ops/transform/transform.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "host/cuda/backend.h"
#include "ops/transform/tunable.h"
#include "penstock/base/error.h"
#include "penstock/ops/transform.h"

namespace ps {
namespace detail {
namespace {

void check_view(std::string_view argument, const TensorView& view, const Device& device) {
  if (!view.is_contiguous()) {
    throw_invalid(argument, "a contiguous view", view.describe() + " with strides");
  }
  if (view.elements() == 0) return;
  const std::size_t element = size_of(view.dtype());
  if (reinterpret_cast<std::uintptr_t>(view.data()) % element != 0) {
    throw_invalid(argument,
                  "data aligned to " + std::to_string(element) + " bytes, the size of an element",
                  "an address that is not");
  }
  // On the CPU every memory but a GPU's is within reach.
  const bool reachable = device.kind() == DeviceKind::cpu ? view.place().memory != Memory::device ||
                                                                view.place().device == cpu_index
                                                          : view.place() == device.place();
  if (!reachable) {
    throw_invalid(argument, "memory of " + device.name() + ", the stream's device",
                  view.describe());
  }
}

bool overlap(const TensorView& a, const TensorView& b) {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data());
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data());
  return begin_a < begin_b + b.bytes() && begin_b < begin_a + a.bytes();
}

void check_float(std::string_view argument, const TensorView& view) {
  const DType type = view.dtype();
  if (type != DType::f32 && type != DType::f16 && type != DType::bf16) {
    throw_invalid(argument, "elements of type f32, f16 or bf16", view.describe());
  }
}

// For what computes in one type, all but cast.
void check_types(std::span<const NamedView> in, const TensorView& out) {
  check_float(in.front().name, in.front().view);
  const DType type = in.front().view.dtype();
  const auto check_same = [&](std::string_view argument, const TensorView& view) {
    if (view.dtype() != type) {
      throw_invalid(argument,
                    "elements of type " + std::string(name(type)) + ", the type of " +
                        std::string(in.front().name),
                    view.describe());
    }
  };
  for (const NamedView& each : in.subspan(1)) check_same(each.name, each.view);
  check_same("out", out);
}

void run(Function function, std::span<const NamedView> in, const TensorView& out, float a, float b,
         TransformKernel kernel, const Stream& stream) {
  const Device device = stream.device();
  check_elementwise(in, out, device);
  if (kernel != TransformKernel::best && kernel != TransformKernel::portable &&
      kernel != TransformKernel::sm90) {
    throw_invalid("kernel", "best, portable or sm90", std::to_string(static_cast<int>(kernel)));
  }
  if (out.elements() == 0) return;

  TransformWork work{.function = function,
                     .in_type = in.front().view.dtype(),
                     .out_type = out.dtype(),
                     .inputs = static_cast<unsigned>(in.size()),
                     .out = out.data(),
                     .elements = static_cast<std::size_t>(out.elements()),
                     .a = a,
                     .b = b};
  std::transform(in.begin(), in.end(), work.in.begin(),
                 [](const NamedView& each) { return each.view.data(); });
  if (device.kind() == DeviceKind::cpu) return transform_cpu(work, stream);

  const cuda::Properties& gpu = static_cast<cuda::Backend&>(device.backend()).properties();
  const bool hopper = gpu.major == 9 && gpu.minor == 0;
  if (gpu.major < 8 || (kernel == TransformKernel::sm90 && !hopper)) {
    const bool old = gpu.major < 8;
    throw Unsupported("transform on " + device.name() + ": needs compute capability " +
                      (old ? "8.0 or later" : "9.0 for kernel sm90") + ", found " +
                      std::to_string(gpu.major) + "." + std::to_string(gpu.minor) +
                      (old ? "; use the CPU device" : "; use kernel portable or best"));
  }
  if (function == Function::cast && work.in_type == work.out_type) {
    const auto bytes_of = [](const TensorView& view) {
      return MemoryView{static_cast<std::byte*>(view.data()), view.bytes(), view.place()};
    };
    if (work.in[0] != work.out) copy(bytes_of(out), bytes_of(in.front().view), stream);
    return;
  }
  transform_gpu(work, transform_kernel(work, kernel, device), stream);
}

}  // namespace

void transform_gpu(const TransformWork& work, TransformKernel kernel, const Stream& stream) {
  if (kernel == TransformKernel::sm90 && transform_sm90(work, stream)) return;
  transform_portable(work, stream);
}

void check_elementwise(std::span<const NamedView> in, const TensorView& out, const Device& device) {
  for (const NamedView& each : in) check_view(each.name, each.view, device);
  check_view("out", out, device);
  const auto check_shape = [&](std::string_view argument, const TensorView& view) {
    const TensorView& first = in.front().view;
    if (!std::ranges::equal(view.shape(), first.shape())) {
      throw_invalid(argument,
                    "the shape of " + std::string(in.front().name) + ", " + first.describe(),
                    view.describe());
    }
  };
  for (const NamedView& each : in.subspan(1)) check_shape(each.name, each.view);
  check_shape("out", out);
  if (out.elements() == 0) return;
  for (const NamedView& each : in) {
    const bool same = each.view.data() == out.data() && each.view.bytes() == out.bytes();
    if (!same && overlap(each.view, out)) {
      const std::string other(each.name);
      throw_invalid("out",
                    "the memory of " + other +
                        " with elements of the same size, or memory that does not overlap it",
                    out.describe() + " over a part of " + other + ", " + each.view.describe());
    }
  }
}

}  // namespace detail

using detail::Function;
using detail::NamedView;

void cast(const CastOptions& options, const Stream& stream) {
  const NamedView in[] = {{"in", options.in}};
  detail::check_float("in", options.in);
  detail::check_float("out", options.out);
  detail::run(Function::cast, in, options.out, 1, 1, options.kernel, stream);
}

void scale(const ScaleOptions& options, const Stream& stream) {
  const NamedView in[] = {{"in", options.in}};
  detail::check_types(in, options.out);
  detail::run(Function::scale, in, options.out, options.factor, 1, options.kernel, stream);
}

void axpby(const AxpbyOptions& options, const Stream& stream) {
  const NamedView in[] = {{"x", options.x}, {"y", options.y}};
  detail::check_types(in, options.out);
  detail::run(Function::axpby, in, options.out, options.a, options.b, options.kernel, stream);
}

void add(const AddOptions& options, const Stream& stream) {
  constexpr std::string_view names[] = {"in[0]", "in[1]", "in[2]", "in[3]"};
  const std::size_t count = options.in.size();
  if (count < 2 || count > std::size(names)) {
    detail::throw_invalid("in", "two to four views", std::to_string(count));
  }
  NamedView in[std::size(names)];
  for (std::size_t i = 0; i < count; ++i) in[i] = {names[i], options.in[i]};
  const std::span<const NamedView> given(in, count);
  detail::check_types(given, options.out);
  detail::run(Function::add, given, options.out, 1, 1, options.kernel, stream);
}

void mul(const MulOptions& options, const Stream& stream) {
  const NamedView in[] = {{"x", options.x}, {"y", options.y}};
  detail::check_types(in, options.out);
  detail::run(Function::mul, in, options.out, 1, 1, options.kernel, stream);
}

void swiglu(const SwigluOptions& options, const Stream& stream) {
  const NamedView in[] = {{"gate", options.gate}, {"up", options.up}};
  detail::check_types(in, options.out);
  detail::run(Function::swiglu, in, options.out, 1, 1, options.kernel, stream);
}

void gelu(const GeluOptions& options, const Stream& stream) {
  if (options.form != Gelu::exact && options.form != Gelu::tanh) {
    detail::throw_invalid("form", "exact or tanh", std::to_string(static_cast<int>(options.form)));
  }
  const NamedView in[] = {{"in", options.in}};
  detail::check_types(in, options.out);
  const bool exact = options.form == Gelu::exact;
  detail::run(exact ? Function::gelu_exact : Function::gelu_tanh, in, options.out, 1, 1,
              options.kernel, stream);
}

}  // namespace ps
