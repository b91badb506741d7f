// Applies a user's function of one to four inputs to each element. Needs nvcc and C++20.
//
//   struct Saxpy {
//     float a;
//     __host__ __device__ float operator()(float x, float y) const { return a * x + y; }
//   };
//   ps::transform<float(float, float)>({.in = {x, y}, .out = y}, Saxpy{2}, stream);
//
// The template argument gives the element types of the output and the inputs, which must match the
// views: float, __half, __nv_bfloat16, double, std::int64_t, std::int32_t, std::uint8_t or bool.
//
// The function object is copied to the device. It takes one element of each input by value and
// returns a value that converts to the output's type. If it declares `using computes_in = float;`,
// it takes and returns float for all element types, which converts 16-bit elements in pairs. It
// must be callable on host and device; a __device__ lambda works too, but throws Unsupported on CPU
// streams.
//
// The rules of ops/transform.h for sizes, addresses, overlap and errors apply.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/cuda.h"
#include "penstock/host/parallel.h"
#include "penstock/kit/launch.cuh"
#include "penstock/ops/transform.h"
#include "penstock/ops/transform/bulk.cuh"
#include "penstock/ops/transform/plain.cuh"

namespace ps {

struct TransformOptions {
  std::vector<TensorView> in{};
  TensorView out{};
  TransformKernel kernel = TransformKernel::best;
};

namespace elementwise {

template <class T>
inline constexpr bool has_dtype = false;
template <class T>
inline constexpr DType dtype_of = DType::u8;
#define PENSTOCK_ELEMENT(type, dtype)           \
  template <>                                   \
  inline constexpr bool has_dtype<type> = true; \
  template <>                                   \
  inline constexpr DType dtype_of<type> = dtype;
PENSTOCK_ELEMENT(double, DType::f64)
PENSTOCK_ELEMENT(float, DType::f32)
PENSTOCK_ELEMENT(__half, DType::f16)
PENSTOCK_ELEMENT(__nv_bfloat16, DType::bf16)
PENSTOCK_ELEMENT(std::int64_t, DType::i64)
PENSTOCK_ELEMENT(std::int32_t, DType::i32)
PENSTOCK_ELEMENT(std::uint8_t, DType::u8)
PENSTOCK_ELEMENT(bool, DType::boolean)
#undef PENSTOCK_ELEMENT

// Sets the current device for a scope.
class OnDevice {
 public:
  explicit OnDevice(int index) {
    kit::detail::check(cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ != index) kit::detail::check(cudaSetDevice(index), "cudaSetDevice");
    changed_ = before_ != index;
  }
  ~OnDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

template <class Signature>
struct Call;

template <class Out, class... In>
struct Call<Out(In...)> {
  static_assert(sizeof...(In) >= 1 && sizeof...(In) <= 4, "one to four inputs");
  static_assert(has_dtype<Out> && (has_dtype<In> && ...), "elements of a type that ps::DType has");
  static constexpr std::size_t inputs = sizeof...(In);

  template <class Function>
  static void run(const TransformOptions& options, const Function& function, const Stream& stream) {
    check(options, stream.device());
    if (options.out.elements() == 0) return;
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      const auto enqueue =
          stream.device().kind() == DeviceKind::cpu ? on_cpu<Function> : on_gpu<Function>;
      enqueue(options, function, stream, static_cast<const In*>(options.in[i].data())...);
    }(std::index_sequence_for<In...>{});
  }

 private:
  static void check(const TransformOptions& options, const Device& device) {
    constexpr std::string_view names[] = {"in[0]", "in[1]", "in[2]", "in[3]"};
    constexpr DType types[] = {dtype_of<In>...};
    if (options.in.size() != inputs) {
      ps::detail::throw_invalid("in", std::to_string(inputs) + " views, as the signature has",
                                std::to_string(options.in.size()));
    }
    ps::detail::NamedView in[inputs];
    for (std::size_t i = 0; i < inputs; ++i) {
      in[i] = {names[i], options.in[i]};
      check_type(names[i], options.in[i], types[i]);
    }
    check_type("out", options.out, dtype_of<Out>);
    ps::detail::check_elementwise(in, options.out, device);
  }

  static void check_type(std::string_view argument, const TensorView& view, DType type) {
    if (view.dtype() == type) return;
    ps::detail::throw_invalid(
        argument, "elements of type " + std::string(name(type)) + ", as the signature has",
        view.describe());
  }

  template <class Function>
  static void on_cpu(const TransformOptions& options, const Function& function,
                     const Stream& stream, const In*... in) {
    if constexpr (__nv_is_extended_device_lambda_closure_type(Function)) {
      throw Unsupported("transform on " + stream.device().name() +
                        ": the function is a __device__ lambda; make it __host__ __device__");
    } else {
      Out* out = static_cast<Out*>(options.out.data());
      const auto elements = static_cast<std::size_t>(options.out.elements());
      stream.call([=] {
        parallel_ranges(elements, 16384, [&](std::size_t begin, std::size_t end) {
          for (std::size_t i = begin; i < end; ++i) out[i] = one(function, in[i]...);
        });
      });
    }
  }

  template <class Function>
  static Out one(const Function& function, const In&... in) {
    if constexpr (ComputesInFloat<Function>) {
      return static_cast<Out>(function(static_cast<float>(in)...));
    } else {
      return static_cast<Out>(function(in...));
    }
  }

  template <class Function>
  static void on_gpu(const TransformOptions& options, const Function& function,
                     const Stream& stream, const In*... in) {
    Out* out = static_cast<Out*>(options.out.data());
    const auto elements = static_cast<std::size_t>(options.out.elements());
    const OnDevice current(stream.device().index());
    using Choice = Best<inputs, 16 / vector_width<Out, In...>(), Light<Function>>;
    using Bulk = typename Choice::Bulk;
    const bool wanted = options.kernel == TransformKernel::sm90;
    if (wanted || (options.kernel == TransformKernel::best && Choice::bulk)) {
      if (has_bulk<Bulk, Function, Out, In...>()) {
        const auto launched =
            launch_bulk<Bulk>(function, elements, cuda_stream(stream), out, in...);
        if (launched) return kit::detail::check(*launched, "launching transform");
      } else if (wanted) {
        throw Unsupported("transform with kernel sm90 on " + stream.device().name() +
                          ": needs compute capability 9.0, of the GPU and of the build; "
                          "use kernel portable or best");
      }
    }
    kit::detail::check(
        launch_plain<typename Choice::Plain>(function, elements, cuda_stream(stream), out, in...),
        "launching transform");
  }
};

}  // namespace elementwise

// Enqueues out[i] = function(in[0][i], ...) for all i and returns. May be captured. The views must
// stay alive until the work is done. Throws InvalidArgument, Unsupported, DeviceError.
template <class Signature, class Function>
void transform(const TransformOptions& options, const Function& function, const Stream& stream) {
  elementwise::Call<Signature>::run(options, function, stream);
}

}  // namespace ps
