#include "ops/transform/transform.h"

#include <algorithm>
#include <string>

#include "ops/arguments.h"
#include "ops/transform/tunable.h"
#include "penstock/base/error.h"
#include "penstock/ops/transform.h"

namespace ps {
namespace detail {
namespace {

void check_float(const Named& argument) {
  check_type(argument, {DType::f32, DType::f16, DType::bf16});
}

// For functions that compute in one type: all except cast.
void check_types(std::span<const NamedView> in, const TensorView& out) {
  const Named first{in.front().name, in.front().view};
  check_float(first);
  for (const NamedView& each : in.subspan(1)) check_same_type({each.name, each.view}, first);
  check_same_type({"out", out}, first);
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

  require_compute(device, "transform");
  if (kernel == TransformKernel::sm90) {
    require_compute(device, "transform",
                    {.major = 9,
                     .or_later = false,
                     .kernel = "sm90",
                     .instead = "use kernel portable or best"});
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
  const Named result{"out", out}, first{in.front().name, in.front().view};
  const auto check_view = [&](const Named& argument) {
    check_contiguous(argument);
    check_memory(argument, device);
  };
  for (const NamedView& each : in) check_view({each.name, each.view});
  check_view(result);
  for (const NamedView& each : in.subspan(1)) check_same_shape({each.name, each.view}, first);
  check_same_shape(result, first);
  for (const NamedView& each : in) check_apart_or_in_place(result, {each.name, each.view});
}

}  // namespace detail

using detail::Function;
using detail::NamedView;

void cast(const CastOptions& options, const Stream& stream) {
  const NamedView in[] = {{"in", options.in}};
  detail::check_float({"in", options.in});
  detail::check_float({"out", options.out});
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
