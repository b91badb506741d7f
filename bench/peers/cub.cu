// CUB's DeviceTransform with the functions of penstock.transform, for penstock/bench/_cub.py.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <climits>
#include <cstddef>
#include <cub/device/device_transform.cuh>
#include <cub/version.cuh>
#include <cuda/std/tuple>
#include <string>
#include <string_view>
#include <utility>

#include "ops/transform/functions.h"
#include "penstock/ops/transform/vector.cuh"

namespace {

using ps::elementwise::Pack;
using ps::elementwise::Precision;
using Brain = __nv_bfloat16;

struct Call {
  const void* const* in;
  void* out;
  int elements;
  float a, b;
  bool vectors;
  cudaStream_t stream;
};

// As one writes it for CUB: a function of elements.
template <class F, class Out>
struct OnElements {
  F function;
  template <class... In>
  __device__ Out operator()(const In&... in) const {
    return static_cast<Out>(function(static_cast<float>(in)...));
  }
};

// A function of vectors, which are elements for CUB.
template <class F, class Out, unsigned n>
struct OnPacks {
  F function;
  template <class... In>
  __device__ Pack<Out, n> operator()(const Pack<In, n>&... in) const {
    Pack<Out, n> result;
    ps::elementwise::apply(function, result, in...);
    return result;
  }
};

template <class Out, class... In, class F>
cudaError_t transform(const F& function, const Call& call) {
  constexpr unsigned width = ps::elementwise::vector_width<Out, In...>();
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    if (call.vectors) {
      if (call.elements % width != 0) return cudaErrorInvalidValue;
      return cub::DeviceTransform::Transform(
          cuda::std::make_tuple(static_cast<const Pack<In, width>*>(call.in[i])...),
          static_cast<Pack<Out, width>*>(call.out), call.elements / static_cast<int>(width),
          OnPacks<F, Out, width>{function}, call.stream);
    }
    return cub::DeviceTransform::Transform(
        cuda::std::make_tuple(static_cast<const In*>(call.in[i])...), static_cast<Out*>(call.out),
        call.elements, OnElements<F, Out>{function}, call.stream);
  }(std::index_sequence_for<In...>{});
}

struct Function {
  std::string_view name, types;  // of the inputs and of the result
  cudaError_t (*enqueue)(const Call&);
};

namespace fs = ps::elementwise;

constexpr Function functions[] = {
    {"cast", "f32 f32", [](const Call& c) { return transform<float, float>(fs::Identity{}, c); }},
    {"cast", "f32 bf16", [](const Call& c) { return transform<Brain, float>(fs::Identity{}, c); }},
    {"scale", "bf16 bf16",
     [](const Call& c) { return transform<Brain, Brain>(fs::Scale{c.a}, c); }},
    {"axpby", "f32 f32",
     [](const Call& c) { return transform<float, float, float>(fs::Axpby{c.a, c.b}, c); }},
    {"axpby", "bf16 bf16",
     [](const Call& c) { return transform<Brain, Brain, Brain>(fs::Axpby{c.a, c.b}, c); }},
    {"add", "f32 f32",
     [](const Call& c) { return transform<float, float, float, float>(fs::Add{}, c); }},
    {"mul", "f16 f16",
     [](const Call& c) { return transform<__half, __half, __half>(fs::Mul{}, c); }},
    {"swiglu", "bf16 bf16",
     [](const Call& c) {
       return transform<Brain, Brain, Brain>(fs::Swiglu<Precision::half>{}, c);
     }},
    {"gelu", "bf16 bf16",
     [](const Call& c) { return transform<Brain, Brain>(fs::GeluExact<Precision::half>{}, c); }},
};

}  // namespace

extern "C" {

const char* penstock_cub_version() {
  static const std::string version = std::to_string(CUB_MAJOR_VERSION) + "." +
                                     std::to_string(CUB_MINOR_VERSION) + "." +
                                     std::to_string(CUB_SUBMINOR_VERSION);
  return version.c_str();
}

// Enqueues one call and returns CUDA's error code, or -1 if the library has no such function. `in`
// holds as many addresses as the function has inputs. `a` and `b` are the factors of scale and
// axpby.
int penstock_cub_transform(const char* function, const char* types, bool vectors,
                           const void* const* in, void* out, std::size_t elements, float a, float b,
                           cudaStream_t stream) {
  if (elements > INT_MAX) return cudaErrorInvalidValue;
  for (const Function& each : functions) {
    if (each.name == function && each.types == types) {
      return each.enqueue({in, out, static_cast<int>(elements), a, b, vectors, stream});
    }
  }
  return -1;
}

}  // extern "C"
