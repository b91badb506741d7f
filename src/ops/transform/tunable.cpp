#include "ops/transform/tunable.h"

#include <algorithm>
#include <array>
#include <memory>

#include "ops/properties.h"
#include "ops/rotation.h"
#include "ops/transform/cpu.h"
#include "ops/transform/dispatch.h"
#include "ops/tunable.h"
#include "penstock/ops/transform/tuning.h"

namespace ps::detail {
namespace {

constexpr std::array transform_kernels = {TransformKernel::portable, TransformKernel::sm90};
constexpr unsigned portable_kernel = 0, sm90_kernel = 1;  // places there

constexpr std::array float_types = {DType::f32, DType::f16, DType::bf16};

std::size_t place_of(DType type) {
  return static_cast<std::size_t>(std::ranges::find(float_types, type) - float_types.begin());
}

struct ProblemCall {
  std::string_view name;
  Function function = Function::cast;
  unsigned inputs = 1;
};

// All but the casts, which come first among the problems.
constexpr std::array problem_calls = {
    ProblemCall{"scale", Function::scale, 1},
    ProblemCall{"axpby", Function::axpby, 2},
    ProblemCall{"add2", Function::add, 2},
    ProblemCall{"add3", Function::add, 3},
    ProblemCall{"add4", Function::add, 4},
    ProblemCall{"mul", Function::mul, 2},
    ProblemCall{"swiglu", Function::swiglu, 2},
    ProblemCall{"gelu exact", Function::gelu_exact, 1},
    ProblemCall{"gelu tanh", Function::gelu_tanh, 1},
};
constexpr std::size_t cast_problems = float_types.size() * (float_types.size() - 1);

// A call of the problem, without memory.
TransformWork work_of(std::size_t problem) {
  TransformWork work{.a = 1.5F, .b = -0.5F};
  if (problem < cast_problems) {
    const std::size_t from = problem / (float_types.size() - 1),
                      to = problem % (float_types.size() - 1);
    work.in_type = float_types.at(from);
    work.out_type = float_types.at(to < from ? to : to + 1);
    return work;
  }
  const ProblemCall& call = problem_calls.at((problem - cast_problems) / float_types.size());
  work.function = call.function;
  work.inputs = call.inputs;
  work.in_type = work.out_type = float_types.at((problem - cast_problems) % float_types.size());
  return work;
}

std::vector<std::string> problem_names() {
  std::vector<std::string> names;
  for (std::size_t problem = 0; problem < cast_problems + problem_calls.size() * float_types.size();
       ++problem) {
    const TransformWork work = work_of(problem);
    if (problem < cast_problems) {
      names.push_back("cast " + std::string(name(work.in_type)) + " to " +
                      std::string(name(work.out_type)));
    } else {
      names.push_back(
          std::string(problem_calls.at((problem - cast_problems) / float_types.size()).name) + " " +
          std::string(name(work.in_type)));
    }
  }
  return names;
}

// By the table of penstock/ops/transform/tuning.h.
bool sm90_is_best(const TransformWork& work) {
  return elementwise::dispatch<CpuTypes, elementwise::Precision::half>(
      work, []<class F, class Out, class... In>(const F&, Out*, const In*...) {
        return elementwise::Best<sizeof...(In), std::max({sizeof(Out), sizeof(In)...}),
                                 elementwise::Light<F>>::bulk;
      });
}

// Both apply the same function to the same elements, and differ in how these come and go.
std::vector<unsigned> transform_candidates(std::size_t problem, const Device& device) {
  if (device.kind() == DeviceKind::cpu) return {};
  const cuda::Properties& gpu = properties_of(device);
  if (gpu.major < 8) return {};
  if (gpu.major != 9 || gpu.minor != 0) return {portable_kernel};
  if (sm90_is_best(work_of(problem))) return {sm90_kernel, portable_kernel};
  return {portable_kernel, sm90_kernel};
}

Trial transform_trial(std::size_t problem, const Device& device, std::size_t bytes) {
  TransformWork work = work_of(problem);
  const std::size_t in = size_of(work.in_type), out = size_of(work.out_type);
  constexpr std::size_t granule = 4096;
  work.elements = std::max(bytes / (work.inputs * in + out) / granule, std::size_t{1}) * granule;
  const std::size_t read = work.inputs * work.elements * in, written = work.elements * out;
  const auto memory = std::make_shared<Rotation>(device, read + written);
  return {.bytes = read + written,
          .enqueue =
              [=](unsigned kernel, std::size_t number, const Stream& stream) {
                TransformWork call = work;
                std::byte* data = (*memory)(number).data;
                for (unsigned i = 0; i < call.inputs; ++i) {
                  call.in[i] = data + i * call.elements * in;
                }
                call.out = data + read;
                transform_gpu(call, transform_kernels.at(kernel), stream);
              },
          .output = [=](std::size_t number) { return (*memory)(number).sub(read, written); }};
}

}  // namespace

std::size_t transform_problem(const TransformWork& work) {
  const std::size_t from = place_of(work.in_type), to = place_of(work.out_type);
  if (work.function == Function::cast)
    return from * (float_types.size() - 1) + (to < from ? to : to - 1);
  const auto call = std::ranges::find_if(problem_calls, [&](const ProblemCall& each) {
    return each.function == work.function && each.inputs == work.inputs;
  });
  return cast_problems +
         static_cast<std::size_t>(call - problem_calls.begin()) * float_types.size() + from;
}

TransformKernel transform_kernel(const TransformWork& work, TransformKernel asked,
                                 const Device& device) {
  if (asked != TransformKernel::best) return asked;
  return transform_kernels.at(chosen_kernel(transform_tunable(), transform_problem(work), device));
}

const Tunable& transform_tunable() {
  static const Tunable tunable{.name = "transform",
                               .kernels = {"portable", "sm90"},
                               .problems = problem_names(),
                               .candidates = transform_candidates,
                               .trial = transform_trial};
  return tunable;
}

}  // namespace ps::detail
