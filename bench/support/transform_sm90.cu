#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cub/device/device_transform.cuh>
#include <cuda/std/tuple>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ops/transform/functions.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/transform/bulk.cuh"
#include "penstock/ops/transform/plain.cuh"
#include "support/transform_case.h"

namespace bench {
namespace {

using ps::elementwise::Axpby;
using ps::elementwise::BulkTuning;
using ps::elementwise::Pack;
using ps::elementwise::PlainTuning;
using ps::elementwise::Precision;

void check(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(what + ": " + cudaGetErrorString(status));
}

template <class T>
constexpr ps::DType type_of() {
  if (std::is_same_v<T, __half>) return ps::DType::f16;
  return std::is_same_v<T, __nv_bfloat16> ? ps::DType::bf16 : ps::DType::f32;
}

// ---- The tunings to compare ------------------------------------------------------------------

using ps::elementwise::Load;
using ps::elementwise::Store;

template <unsigned threads_, unsigned bytes_, Load load_ = Load::plain, Store store_ = Store::plain>
struct PlainOf : PlainTuning {
  static constexpr unsigned threads = threads_, bytes = bytes_, light_bytes = bytes_;
  static constexpr unsigned resident = 1024 / threads, light_resident = 2048 / threads;
  static constexpr Load load = load_;
  static constexpr Store store = store_;
};
template <unsigned threads_, unsigned tile_bytes_, Store store_ = Store::plain>
struct BulkOf : BulkTuning {
  static constexpr unsigned threads = threads_, tile_bytes = tile_bytes_;
  static constexpr unsigned resident = 2048 / threads;
  static constexpr Store store = store_;
};

// ---- CUB ---------------------------------------------------------------------------------------

// As one writes it for CUB: a function of elements.
template <class F, class Out>
struct OnElements {
  F function;
  template <class... In>
  __device__ Out operator()(const In&... in) const {
    return static_cast<Out>(function(static_cast<float>(in)...));
  }
};

// By vectors of elements, which CUB takes as elements of its own.
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

// ---- The check ---------------------------------------------------------------------------------

// A result in f64, and the largest number that was rounded to f32 on the way to it.
struct Exact {
  double value, largest;
};

template <class T>
__device__ double spacing(double at) {
  constexpr int digits = sizeof(T) == 4 ? 23 : std::is_same_v<T, __half> ? 10 : 7;
  constexpr int lowest = std::is_same_v<T, __half> ? -14 : -126;
  const int exponent = at == 0 ? lowest : max(ilogb(at), lowest);
  return ldexp(1.0, exponent - digits);
}

template <class Reference, class Out, class... In>
__global__ void error_kernel(Reference reference, std::size_t elements, unsigned* worst,
                             const Out* out, const In*... in) {
  float largest = 0;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements;
       i += stride) {
    const Exact exact = reference(static_cast<double>(static_cast<float>(in[i]))...);
    const double allowed = 0.5 * spacing<Out>(exact.value) + 4 * spacing<float>(exact.largest) +
                           (sizeof(Out) == 2 ? 1e-4 * fabs(exact.value) : 0.0);
    const double error =
        fabs(static_cast<double>(static_cast<float>(out[i])) - exact.value) / allowed;
    largest = error <= largest ? largest : static_cast<float>(isnan(error) ? INFINITY : error);
  }
  atomicMax(worst, __float_as_uint(largest));  // numbers above 0 are ordered as their bits
}

// ---- A case ------------------------------------------------------------------------------------

template <class F, class Reference, class Out, class... In>
struct Builder {
  F function;
  Reference reference;
  static constexpr unsigned width = ps::elementwise::vector_width<Out, In...>();

  // Calls use(out, in...) with typed pointers.
  template <class Use>
  static auto typed(const TransformSet& set, const Use& use) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return use(static_cast<Out*>(set.out), static_cast<const In*>(set.in[i])...);
    }(std::index_sequence_for<In...>{});
  }

  template <class Tuning>
  NamedEnqueue plain(const char* name) const {
    return {name, [f = function](const TransformSet& set, const ps::Stream& stream) {
              typed(set, [&](Out* out, const In*... in) {
                check(ps::elementwise::launch_plain<Tuning>(f, set.elements,
                                                            ps::cuda_stream(stream), out, in...),
                      "plain kernel");
              });
            }};
  }

  template <class Tuning>
  NamedEnqueue bulk(const char* name) const {
    return {name, [f = function](const TransformSet& set, const ps::Stream& stream) {
              typed(set, [&](Out* out, const In*... in) {
                const auto launched = ps::elementwise::launch_bulk<Tuning>(
                    f, set.elements, ps::cuda_stream(stream), out, in...);
                check(launched.value(), "bulk kernel");
              });
            }};
  }

  NamedEnqueue cub_by_elements() const {
    return {"elements", [f = function](const TransformSet& set, const ps::Stream& stream) {
              typed(set, [&](Out* out, const In*... in) {
                check(cub::DeviceTransform::Transform(
                          cuda::std::make_tuple(in...), out, static_cast<int>(set.elements),
                          OnElements<F, Out>{f}, ps::cuda_stream(stream)),
                      "cub::DeviceTransform");
              });
            }};
  }

  NamedEnqueue cub_by_vectors() const {
    return {"vectors", [f = function](const TransformSet& set, const ps::Stream& stream) {
              typed(set, [&](Out* out, const In*... in) {
                check(cub::DeviceTransform::Transform(
                          cuda::std::make_tuple(reinterpret_cast<const Pack<In, width>*>(in)...),
                          reinterpret_cast<Pack<Out, width>*>(out),
                          static_cast<int>(set.elements / width), OnPacks<F, Out, width>{f},
                          ps::cuda_stream(stream)),
                      "cub::DeviceTransform");
              });
            }};
  }

  double error(const TransformSet& set, const ps::Stream& stream) const {
    const ps::DeviceBuffer worst(stream.device(), sizeof(unsigned));
    ps::fill(worst.view(), 0, stream);
    typed(set, [&](Out* out, const In*... in) {
      error_kernel<<<1024, 256, 0, ps::cuda_stream(stream)>>>(
          reference, set.elements, worst.view().template as<unsigned>(), out, in...);
    });
    check(cudaGetLastError(), "checking");
    float found = std::numeric_limits<float>::infinity();
    check(cudaMemcpyAsync(&found, worst.view().data, sizeof(found), cudaMemcpyDeviceToHost,
                          ps::cuda_stream(stream)),
          "checking");
    stream.synchronize();
    return found;
  }

  template <class Ours>
  TransformCase build(std::string name, const Ours& ours) const {
    TransformCase result;
    result.name = std::move(name);
    result.inputs = sizeof...(In);
    result.in = type_of<std::tuple_element_t<0, std::tuple<In...>>>();
    result.out = type_of<Out>();
    const auto view = [](void* data, ps::DType type, std::size_t elements,
                         const ps::Stream& stream) {
      return ps::TensorView(data, type, {static_cast<std::int64_t>(elements)},
                            stream.device().place());
    };
    result.ours = [ours, view, in = result.in, out = result.out](const TransformSet& set,
                                                                 ps::TransformKernel kernel,
                                                                 const ps::Stream& stream) {
      std::vector<ps::TensorView> views;
      for (std::size_t i = 0; i < sizeof...(In); ++i) {
        views.push_back(view(set.in[i], in, set.elements, stream));
      }
      ours(views, view(set.out, out, set.elements, stream), kernel, stream);
    };
    result.cub = {cub_by_elements(), cub_by_vectors()};
    constexpr auto passed = Store::streaming;
    result.variants = {plain<PlainTuning>("plain"),
                       plain<PlainOf<128, 32>>("plain, 128 threads, 32 B"),
                       plain<PlainOf<128, 64>>("plain, 128 threads, 64 B"),
                       plain<PlainOf<256, 64, Load::streaming, passed>>("streamed, 256, 64 B"),
                       bulk<BulkOf<256, 8192>>("bulk, 256 threads, 8 KiB"),
                       bulk<BulkOf<128, 4096>>("bulk, 128 threads, 4 KiB"),
                       bulk<BulkOf<256, 8192, passed>>("bulk, stores passed, 8 KiB")};
    result.error = [self = *this](const TransformSet& set, const ps::Stream& stream) {
      return self.error(set, stream);
    };
    return result;
  }
};

template <class Out, class... In, class F, class Reference>
Builder<F, Reference, Out, In...> of(const F& function, const Reference& reference) {
  return {function, reference};
}

// The references.
struct ExactCast {
  __device__ Exact operator()(double x) const { return {x, 0}; }
};
struct ExactScale {
  __device__ Exact operator()(double x) const { return {1.7F * x, 1.7F * x}; }
};
struct ExactAxpby {
  __device__ Exact operator()(double x, double y) const {
    const double ax = 0.3F * x, by = -2.1F * y;
    return {ax + by, fmax(fabs(ax), fabs(by))};
  }
};
struct ExactAdd {
  __device__ Exact operator()(double x, double y, double z) const {
    return {x + y + z, fabs(x) + fabs(y) + fabs(z)};
  }
};
struct ExactMul {
  __device__ Exact operator()(double x, double y) const { return {x * y, x * y}; }
};
struct ExactSwiglu {
  __device__ Exact operator()(double gate, double up) const {
    const double value = gate / (1 + exp(-gate)) * up;
    return {value, value};
  }
};
struct ExactGelu {
  __device__ Exact operator()(double x) const {
    const double value = x * normcdf(x);
    return {value, value};
  }
};

template <class T>
__global__ void random_kernel(T* to, std::size_t elements, std::uint32_t seed) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements;
       i += stride) {
    std::uint32_t bits = static_cast<std::uint32_t>(i) * 2654435761U ^ seed;
    float sum = -4;  // of eight uniform numbers: near enough to a normal distribution
    for (int round = 0; round < 8; ++round) {
      bits ^= bits << 13, bits ^= bits >> 17, bits ^= bits << 5;
      sum += static_cast<float>(bits >> 8) * 0x1p-24F;
    }
    to[i] = static_cast<T>(3 * sum);
  }
}

}  // namespace

const std::vector<TransformCase>& transform_cases() {
  using Views = std::vector<ps::TensorView>;
  using View = ps::TensorView;
  using Kernel = ps::TransformKernel;
  using Brain = __nv_bfloat16;
  const auto axpby = [](const Views& in, const View& out, Kernel kernel, const ps::Stream& s) {
    ps::axpby({.x = in[0], .y = in[1], .out = out, .a = 0.3F, .b = -2.1F, .kernel = kernel}, s);
  };
  static const std::vector<TransformCase> cases = {
      of<Brain, float>(ps::elementwise::Identity{}, ExactCast{})
          .build("cast f32 to bf16",
                 [](const Views& in, const View& out, Kernel kernel, const ps::Stream& s) {
                   ps::cast({.in = in[0], .out = out, .kernel = kernel}, s);
                 }),
      of<Brain, Brain>(ps::elementwise::Scale{1.7F}, ExactScale{})
          .build("scale bf16",
                 [](const Views& in, const View& out, Kernel kernel, const ps::Stream& s) {
                   ps::scale({.in = in[0], .out = out, .factor = 1.7F, .kernel = kernel}, s);
                 }),
      of<float, float, float>(Axpby{0.3F, -2.1F}, ExactAxpby{}).build("axpby f32", axpby),
      of<Brain, Brain, Brain>(Axpby{0.3F, -2.1F}, ExactAxpby{}).build("axpby bf16", axpby),
      of<float, float, float, float>(ps::elementwise::Add{}, ExactAdd{})
          .build("add 3 f32",
                 [](const Views& in, const View& out, Kernel kernel, const ps::Stream& s) {
                   ps::add({.in = in, .out = out, .kernel = kernel}, s);
                 }),
      of<Brain, Brain, Brain>(ps::elementwise::Swiglu<Precision::half>{}, ExactSwiglu{})
          .build("swiglu bf16",
                 [](const Views& in, const View& out, Kernel kernel, const ps::Stream& s) {
                   ps::swiglu({.gate = in[0], .up = in[1], .out = out, .kernel = kernel}, s);
                 }),
      of<Brain, Brain>(ps::elementwise::GeluExact<Precision::half>{}, ExactGelu{})
          .build("gelu bf16",
                 [](const Views& in, const View& out, Kernel kernel, const ps::Stream& s) {
                   ps::gelu({.in = in[0], .out = out, .kernel = kernel}, s);
                 }),
      of<__half, __half, __half>(ps::elementwise::Mul{}, ExactMul{})
          .build("mul f16",
                 [](const Views& in, const View& out, Kernel kernel, const ps::Stream& s) {
                   ps::mul({.x = in[0], .y = in[1], .out = out, .kernel = kernel}, s);
                 }),
  };
  return cases;
}

void fill_random(const TransformCase& of, const TransformSet& set, const ps::Stream& stream) {
  for (unsigned i = 0; i < of.inputs; ++i) {
    const auto fill = [&](auto element) {
      using T = decltype(element);
      random_kernel<<<1024, 256, 0, ps::cuda_stream(stream)>>>(static_cast<T*>(set.in[i]),
                                                               set.elements, 17 * i + 1);
    };
    if (of.in == ps::DType::f16) {
      fill(__half{});
    } else if (of.in == ps::DType::bf16) {
      fill(__nv_bfloat16{});
    } else {
      fill(float{});
    }
  }
  check(cudaGetLastError(), "filling");
}

}  // namespace bench
