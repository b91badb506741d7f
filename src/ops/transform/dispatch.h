// From a function and types known at run time to ones known when compiled.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/transform/functions.h"
#include "ops/transform/transform.h"

namespace ps::elementwise {

// The types that elements have in a kernel, and whether casts to the same type, which change no
// bit, are the kernel's work too.
template <class F32, class F16, class BF16, bool copies_>
struct ElementTypes {
  static constexpr bool copies = copies_;
  // Calls use(T{}) with the one of `type`.
  template <class Use>
  static auto with(DType type, const Use& use) {
    if (type == DType::f16) return use(F16{});
    if (type == DType::bf16) return use(BF16{});
    return use(F32{});
  }
};

// Calls run(function, out, in...) with everything typed, and returns what it returns.
template <class Types, Precision of_16_bits, class Run>
auto dispatch(const ps::detail::TransformWork& work, const Run& run) {
  using ps::detail::Function;
  const auto in = [&](unsigned i, auto element) {
    return static_cast<const decltype(element)*>(work.in[i]);
  };
  const auto cast = [&](auto from) {
    return Types::with(work.out_type, [&](auto to) {
      using To = decltype(to);
      if constexpr (!std::is_same_v<decltype(from), To>) {
        return run(Identity{}, static_cast<To*>(work.out), in(0, from));
      } else if constexpr (Types::copies) {
        using Bits = std::conditional_t<sizeof(To) == 4, std::uint32_t, std::uint16_t>;
        return run(Copy{}, static_cast<Bits*>(work.out), in(0, Bits{}));
      } else {
        return decltype(run(Scale{}, static_cast<To*>(work.out), in(0, from))){};  // never asked
      }
    });
  };
  return Types::with(work.in_type, [&](auto e) {
    using T = decltype(e);
    constexpr Precision precision = sizeof(T) == 2 ? of_16_bits : Precision::full;
    T* out = static_cast<T*>(work.out);
    switch (work.function) {
      case Function::cast:
        break;
      case Function::scale:
        return run(Scale{work.a}, out, in(0, e));
      case Function::axpby:
        return run(Axpby{work.a, work.b}, out, in(0, e), in(1, e));
      case Function::add:
        if (work.inputs == 2) return run(Add{}, out, in(0, e), in(1, e));
        if (work.inputs == 3) return run(Add{}, out, in(0, e), in(1, e), in(2, e));
        return run(Add{}, out, in(0, e), in(1, e), in(2, e), in(3, e));
      case Function::mul:
        return run(Mul{}, out, in(0, e), in(1, e));
      case Function::swiglu:
        return run(Swiglu<precision>{}, out, in(0, e), in(1, e));
      case Function::gelu_exact:
        return run(GeluExact<precision>{}, out, in(0, e));
      case Function::gelu_tanh:
        return run(GeluTanh<precision>{}, out, in(0, e));
    }
    return cast(e);
  });
}

}  // namespace ps::elementwise
