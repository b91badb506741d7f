#include "penstock/measure/yardstick.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <random>
#include <stdexcept>

#include "penstock/base/error.h"
#include "penstock/host/stream.h"
#include "penstock/ops/iterate.h"

namespace ps {
namespace {

constexpr std::uint8_t nan_byte = 0xFF;

std::size_t checked_bytes(std::size_t bytes) {
  if (bytes == 0 || bytes % sizeof(float) != 0) {
    detail::throw_invalid("bytes", "a multiple of 4 above 0", std::to_string(bytes));
  }
  return bytes;
}

void fill_random(MemoryView memory) {
  std::uint64_t state = 0x9E3779B97F4A7C15U;
  auto* values = memory.as<float>();
  for (std::size_t i = 0; i < memory.bytes / sizeof(float); ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    values[i] = static_cast<float>(state >> 40U) * 0x1p-22F - 2.0F;
  }
}

}  // namespace

TensorView floats(MemoryView memory) {
  return {memory.data,
          DType::f32,
          {static_cast<std::int64_t>(memory.bytes / sizeof(float))},
          memory.place};
}

void check_iterated(MemoryView out, MemoryView in, int rounds, std::size_t samples) {
  const std::size_t elements = in.bytes / sizeof(float);
  if (elements == 0) return;
  std::mt19937_64 generator(elements);
  std::uniform_int_distribution<std::size_t> anywhere(0, elements - 1);
  for (std::size_t k = 0; k < samples; ++k) {
    const std::size_t i = k == 0 ? 0 : k == 1 ? elements - 1 : anywhere(generator);
    const float got = out.as<float>()[i], expected = iterated(in.as<float>()[i], rounds);
    // By bits, so that NaN is not equal to anything it should not be.
    if (std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(expected)) {
      throw std::runtime_error(
          fmt::format("wrong result: element {} is {}, expected {}", i, got, expected));
    }
  }
}

Yardstick::Yardstick(const Device& device, std::size_t bytes)
    : device_(device),
      input_(device, checked_bytes(bytes)),
      output_(device, bytes),
      result_(device, bytes) {
  fill_random(input());
}

void Yardstick::poison() const {
  const Stream stream(device_);
  fill(result(), nan_byte, stream);
  std::memset(output().data, nan_byte, output().bytes);
  stream.synchronize();
}

void Yardstick::check_output(int rounds) const { check_iterated(output(), input(), rounds); }

void Yardstick::check_result(int rounds) const {
  const Stream stream(device_);
  copy(output(), result(), stream);
  stream.synchronize();
  check_output(rounds);
}

}  // namespace ps
