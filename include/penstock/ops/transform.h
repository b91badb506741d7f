// Elementwise functions of one to four inputs, limited by memory bandwidth.
//
//   ps::swiglu({.gate = gate, .up = up, .out = out}, stream);
//
// Operands are contiguous f32, f16 or bf16 views on the stream's device. All operands of a call
// have the same shape and, except for cast, the same type. Elements are computed in f32 and rounded
// once, to nearest even; values that are too large become infinity. Results of cast, scale, axpby,
// add and mul are bitwise identical on every device, except for the bits of NaN.
//
// Any size works, including zero, and any address that is a multiple of the element size. Calls are
// fastest if all operands have the same offset from a 16-byte boundary, in elements. `out` may be
// one of the inputs if its elements have the same size; any other overlap throws.
//
// All calls enqueue and return, and may be captured. The views must stay alive until the work is
// done. Calls throw InvalidArgument naming the argument, and Unsupported on GPUs below compute
// capability 8.0. For other functions see ops/transform.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

// The kernel on a GPU; ignored on the CPU.
enum class TransformKernel : std::uint8_t {
  best,      // the one `penstock tune` chose on this machine, else a built-in choice
  portable,  // vector loads
  sm90,      // bulk copies into shared memory; needs compute capability 9.0. Falls back to
             // `portable` if the operands' addresses do not suit bulk copies
};

struct CastOptions {
  TensorView in{};
  TensorView out{};  // if it has the type of `in`, the bits are copied
  TransformKernel kernel = TransformKernel::best;
};
void cast(const CastOptions& options, const Stream& stream);

// out = factor * in
struct ScaleOptions {
  TensorView in{}, out{};
  float factor = 1;
  TransformKernel kernel = TransformKernel::best;
};
void scale(const ScaleOptions& options, const Stream& stream);

// out = a * x + b * y, where b * y is rounded to f32 first
struct AxpbyOptions {
  TensorView x{}, y{}, out{};
  float a = 1, b = 1;
  TransformKernel kernel = TransformKernel::best;
};
void axpby(const AxpbyOptions& options, const Stream& stream);

// out = in[0] + in[1] + ..., added from left to right
struct AddOptions {
  std::vector<TensorView> in{};  // two to four
  TensorView out{};
  TransformKernel kernel = TransformKernel::best;
};
void add(const AddOptions& options, const Stream& stream);

// out = x * y
struct MulOptions {
  TensorView x{}, y{}, out{};
  TransformKernel kernel = TransformKernel::best;
};
void mul(const MulOptions& options, const Stream& stream);

// out = gate / (1 + exp(-gate)) * up
struct SwigluOptions {
  TensorView gate{}, up{}, out{};
  TransformKernel kernel = TransformKernel::best;
};
void swiglu(const SwigluOptions& options, const Stream& stream);

enum class Gelu : std::uint8_t {
  exact,  // x/2 (1 + erf(x / sqrt(2)))
  tanh,   // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
};

struct GeluOptions {
  TensorView in{}, out{};
  Gelu form = Gelu::exact;
  TransformKernel kernel = TransformKernel::best;
};
void gelu(const GeluOptions& options, const Stream& stream);

namespace detail {

struct NamedView {
  std::string_view name;
  TensorView view;
};

// Checks layout, shape, device, alignment and overlap of the operands, but not their types.
void check_elementwise(std::span<const NamedView> in, const TensorView& out, const Device& device);

}  // namespace detail

}  // namespace ps
