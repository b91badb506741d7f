// Non-owning views of memory. The caller keeps the memory alive until the work enqueued on it has
// completed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "penstock/base/dtype.h"
#include "penstock/base/place.h"

namespace ps {

// Contiguous bytes.
struct MemoryView {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  Place place{};

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }

  // Bytes [offset, offset + count). Throws InvalidArgument if they are not inside the view.
  MemoryView sub(std::size_t offset, std::size_t count) const;
};

inline constexpr std::size_t max_rank = 8;

// A strided array. Constructors throw InvalidArgument for negative extents, 2^63 bytes or more, and
// more than max_rank dimensions.
class TensorView {
 public:
  TensorView() = default;

  // Contiguous, in row-major order.
  TensorView(void* data, DType dtype, std::span<const std::int64_t> shape, Place place = {});
  TensorView(void* data, DType dtype, std::initializer_list<std::int64_t> shape, Place place = {});

  // Strides count elements and may be zero (broadcast) or negative.
  TensorView(void* data, DType dtype, std::span<const std::int64_t> shape,
             std::span<const std::int64_t> strides, Place place = {});

  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  Place place() const { return place_; }
  std::size_t rank() const { return rank_; }
  std::span<const std::int64_t> shape() const { return {shape_.data(), rank_}; }
  std::span<const std::int64_t> strides() const { return {strides_.data(), rank_}; }
  std::int64_t extent(std::size_t dimension) const;
  std::int64_t elements() const { return elements_; }
  bool is_contiguous() const;

  // elements() * size_of(dtype())
  std::size_t bytes() const { return static_cast<std::size_t>(elements_) * size_of(dtype_); }

  // The elements as bytes. Throws InvalidArgument if the view is not contiguous.
  MemoryView memory() const;

  // "f32[4, 128] on cuda:0", for messages.
  std::string describe() const;

 private:
  void set(void* data, DType dtype, std::span<const std::int64_t> shape, Place place);

  void* data_ = nullptr;
  DType dtype_ = DType::u8;
  Place place_{};
  std::size_t rank_ = 1;
  std::array<std::int64_t, max_rank> shape_{};
  std::array<std::int64_t, max_rank> strides_{1};
  std::int64_t elements_ = 0;
};

}  // namespace ps
