#include "support/data.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <random>
#include <stdexcept>

#include "penstock/host/stream.h"
#include "penstock/ops/iterate.h"

namespace ladder {
namespace {

constexpr std::uint8_t nan_byte = 0xFF;

void fill_random(ps::MemoryView memory) {
  std::uint64_t state = 0x9E3779B97F4A7C15U;
  auto* values = memory.as<float>();
  for (std::size_t i = 0; i < memory.bytes / sizeof(float); ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    values[i] = static_cast<float>(state >> 40U) * 0x1p-22F - 2.0F;
  }
}

}  // namespace

ps::TensorView floats(ps::MemoryView memory) {
  return {memory.data,
          ps::DType::f32,
          {static_cast<std::int64_t>(memory.bytes / sizeof(float))},
          memory.place};
}

void check_iterated(ps::MemoryView out, ps::MemoryView in, int rounds, std::size_t samples) {
  const std::size_t elements = in.bytes / sizeof(float);
  std::mt19937_64 generator(elements);
  std::uniform_int_distribution<std::size_t> anywhere(0, elements - 1);
  for (std::size_t k = 0; k < samples; ++k) {
    // The ends, and in between anywhere.
    const std::size_t i = k == 0 ? 0 : k == 1 ? elements - 1 : anywhere(generator);
    const float got = out.as<float>()[i], expected = ps::iterated(in.as<float>()[i], rounds);
    // By bits, so that NaN is not equal to anything it should not be.
    if (std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(expected)) {
      throw std::runtime_error(
          fmt::format("wrong result: element {} is {}, expected {}", i, got, expected));
    }
  }
}

Data::Data(const ps::Device& device, std::size_t bytes)
    : device_(device), input_(device, bytes), output_(device, bytes), result_(device, bytes) {
  fill_random(input());
}

void Data::poison_output() const { std::memset(output().data, nan_byte, output().bytes); }

void Data::poison_result() const {
  const ps::Stream stream(device_);
  ps::fill(result(), nan_byte, stream);
  stream.synchronize();
}

void Data::check_output(int rounds) const { check_iterated(output(), input(), rounds); }

void Data::check_result(int rounds) const {
  const ps::Stream stream(device_);
  ps::copy(output(), result(), stream);
  stream.synchronize();
  check_output(rounds);
}

}  // namespace ladder
