#include <type_traits>

#include "ops/resample/formula.h"
#include "ops/resample/rows.h"
#include "ops/transform/half.h"

namespace ps::resampling {
namespace {

using detail::BF16;
using detail::F16;

// What is computed in, by type.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 2, float, double>;

template <class T>
Wide<T> wide(T x) {
  if constexpr (sizeof(T) == 2) {
    return detail::widen(x);
  } else {
    return x;
  }
}

template <class T>
T narrowed(Wide<T> x) {
  if constexpr (sizeof(T) == 2) {
    T result;
    detail::narrow(x, result);
    return result;
  } else {
    return static_cast<T>(x);
  }
}

template <class T>
void blend(const BlendRow& row, std::size_t count) {
  const T *x = static_cast<const T*>(row.x), *y = static_cast<const T*>(row.y);
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<T*>(row.out)[i] =
        narrowed<T>(blended(wide(x[i]), wide(y[i]), static_cast<Wide<T>>(row.w)));
  }
}

template <class T>
void slerp_row(const BlendRow& row, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 4) {
    Wide<T> from[4], to[4], result[4];
    for (std::size_t part = 0; part < 4; ++part) {
      from[part] = wide(static_cast<const T*>(row.x)[i + part]);
      to[part] = wide(static_cast<const T*>(row.y)[i + part]);
    }
    slerp(from, to, static_cast<Wide<T>>(row.w), result);
    for (std::size_t part = 0; part < 4; ++part) {
      static_cast<T*>(row.out)[i + part] = narrowed<T>(result[part]);
    }
  }
}

template <class T>
void add(void* sum, const void* row, double w, std::size_t count) {
  auto* sums = static_cast<Wide<T>*>(sum);
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = fused(static_cast<Wide<T>>(w), wide(static_cast<const T*>(row)[i]), sums[i]);
  }
}

template <class T>
void round(void* out, const void* sum, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<T*>(out)[i] = narrowed<T>(static_cast<const Wide<T>*>(sum)[i]);
  }
}

template <class T>
RowKernels rows_of() {
  return {.blend = blend<T>, .slerp = slerp_row<T>, .add = add<T>, .round = round<T>};
}

}  // namespace

RowKernels baseline_rows(DType type) {
  if (type == DType::f64) return rows_of<double>();
  if (type == DType::f32) return rows_of<float>();
  if (type == DType::f16) return rows_of<F16>();
  if (type == DType::bf16) return rows_of<BF16>();
  return {};
}

RowKernels row_kernels(DType type) {
  RowKernels rows = avx2_rows(type);
  const RowKernels baseline = baseline_rows(type);
  if (rows.blend == nullptr) return baseline;
  rows.slerp = baseline.slerp;
  return rows;
}

}  // namespace ps::resampling
