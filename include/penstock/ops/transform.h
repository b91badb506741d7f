// Elementwise functions over one to four inputs, at the speed of memory.
//
//   ps::swiglu({.gate = gate, .up = up, .out = out}, stream);
//
// Every operand is a contiguous view on the stream's device, of f32, f16 or bf16; all of a call
// have one shape and, but for cast, one type. Numbers are computed in f32 and rounded once, to the
// nearest, ties to even; NaN stays NaN, and what is too large becomes infinity. Results of cast,
// scale, axpby, add and mul are the same bits on every device, NaN's aside.
//
// Any size, zero included, and any address that is a multiple of the element's size. Where a number
// of elements below 16 leads all operands to a 16-byte boundary, as it does when all begin at one,
// memory is the limit; otherwise elements go one by one, slower. `out` may be one of the inputs,
// when its elements are as large; any other overlap is refused.
//
// All calls enqueue and return, and may be captured. They throw InvalidArgument, which names the
// argument, and Unsupported on GPUs older than 8.0. For other functions see ops/transform.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

// Which kernel a GPU runs. The CPU has one way and ignores it.
enum class TransformKernel : std::uint8_t {
  best,      // as measured, for this GPU, function and type: by `penstock tune`, else by us
  portable,  // plain vector loads; compute capability 8.0
  sm90,      // tiles by bulk copies into shared memory; compute capability 9.0 alone, and
             // operands that 16-byte boundaries suit, or it is `portable` after all
};

struct CastOptions {
  TensorView in{};
  TensorView out{};  // of another type, or the same: then a copy, bit by bit
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

// out = a * x + b * y; b * y is rounded to f32, the rest once
struct AxpbyOptions {
  TensorView x{}, y{}, out{};
  float a = 1, b = 1;
  TransformKernel kernel = TransformKernel::best;
};
void axpby(const AxpbyOptions& options, const Stream& stream);

// out = in[0] + in[1] + ..., from left to right
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

// The door of every elementwise function: layout, shape, place, alignment and overlap; not types.
void check_elementwise(std::span<const NamedView> in, const TensorView& out, const Device& device);

}  // namespace detail

}  // namespace ps
