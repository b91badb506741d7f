// bf16 values of several distributions, as bits, and calls of compress() for tests.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "penstock/ops/compress.h"

namespace ps::test {

using Bf16s = std::vector<std::uint16_t>;

enum class Values { normal, student_t5, uniform, any_bits, nine_exponents, many_exponents, equal };
inline constexpr Values all_values[] = {
    Values::normal,         Values::student_t5,     Values::uniform, Values::any_bits,
    Values::nine_exponents, Values::many_exponents, Values::equal};

// Rounded to the nearest, ties to even; not for NaN.
inline std::uint16_t bf16_of(double x) {
  const auto narrow = static_cast<float>(x);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// The same values with every standard library, unlike std::normal_distribution.
class RandomValues {
 public:
  explicit RandomValues(std::uint32_t seed) : random_(seed) {}

  std::uint16_t one(Values kind) {
    const std::uint32_t any = bits();
    switch (kind) {
      case Values::normal:
        return bf16_of(0.02 * normal());
      case Values::student_t5: {
        double squares = 0;
        for (int i = 0; i < 5; ++i) squares += std::pow(normal(), 2);
        return bf16_of(0.02 * normal() / std::sqrt(squares / 5));
      }
      case Values::uniform:
        return bf16_of(0.04 * (fraction() - 0.5));
      case Values::any_bits:
        return static_cast<std::uint16_t>(any);
      case Values::nine_exponents:  // what the three lists of codes hold
        return static_cast<std::uint16_t>((any & 0x807F) | (100 + (any >> 16) % 9) << 7);
      case Values::many_exponents:  // the lists are long, and only just worth it
        return static_cast<std::uint16_t>((any & 0x807F) | (100 + (any >> 16) % 13) << 7);
      case Values::equal:
        return 0xBF81;
    }
    return 0;
  }

  Bf16s many(Values kind, std::size_t count) {
    Bf16s values(count);
    for (std::uint16_t& value : values) value = one(kind);
    return values;
  }

  std::uint32_t bits() { return static_cast<std::uint32_t>(random_()); }

 private:
  double fraction() { return (bits() + 0.5) / 4294967296.0; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(fraction()));
    return radius * std::cos(2 * 3.14159265358979323846 * fraction());
  }

  std::mt19937 random_;
};

inline TensorView values_view(Bf16s& values) {
  return {values.data(), DType::bf16, {static_cast<std::int64_t>(values.size())}};
}

// A block of memory of exactly this size, so that AddressSanitizer finds accesses past its end. The
// alignment is what decompress() asks for, and no more.
class ExactBytes {
 public:
  explicit ExactBytes(std::size_t size)
      : memory_(static_cast<std::uint8_t*>(operator new(size, std::align_val_t{16}))),
        size_(size) {}
  ExactBytes(const void* bytes, std::size_t size) : ExactBytes(size) {
    if (size > 0) std::memcpy(data(), bytes, size);
  }
  explicit ExactBytes(const std::vector<std::uint8_t>& bytes)
      : ExactBytes(bytes.data(), bytes.size()) {}

  std::uint8_t* data() const { return memory_.get(); }
  std::size_t size() const { return size_; }
  TensorView view() const { return {data(), DType::u8, {static_cast<std::int64_t>(size_)}}; }
  TensorView bf16s() const { return {data(), DType::bf16, {static_cast<std::int64_t>(size_ / 2)}}; }

 private:
  struct Delete {
    void operator()(std::uint8_t* memory) const { operator delete(memory, std::align_val_t{16}); }
  };
  std::unique_ptr<std::uint8_t, Delete> memory_;
  std::size_t size_ = 0;
};

inline std::vector<std::uint8_t> compressed(Bf16s values) {
  const std::size_t limit = compressed_bytes_limit(static_cast<std::int64_t>(values.size()));
  const ExactBytes room(limit);
  const std::size_t bytes = compress({.x = values_view(values), .out = room.view()});
  return {room.data(), room.data() + bytes};
}

// On the CPU, from and into memory of exactly the right size.
inline Bf16s decompressed(const std::vector<std::uint8_t>& bytes, std::size_t count) {
  const ExactBytes from(bytes), to(2 * count);
  std::memset(to.data(), 0xA5, to.size());
  const Stream stream(Device::cpu());
  decompress({.compressed = from.view(), .out = to.bf16s()}, stream);
  stream.synchronize();
  Bf16s values(count);
  if (count > 0) std::memcpy(values.data(), to.data(), to.size());
  return values;
}

}  // namespace ps::test
