// Small safetensors files, right and wrong.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/base/view.h"
#include "penstock/weights/weights.h"
#include "penstock/weights/writer.h"
#include "support/failure_of.h"

namespace ps::test {

// A file: the length, the header, and `data` bytes.
inline std::string safetensors(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  file += header;
  for (std::size_t i = 0; i < data; ++i) file += static_cast<char>(i * 7 + 1);
  return file;
}

inline MemoryView in(std::vector<std::byte>& bytes) {
  return {bytes.data(), bytes.size(), {Memory::host}};
}

inline std::vector<std::byte> random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

inline std::vector<std::byte> read(const Weights& weights, std::string_view name) {
  const std::size_t tensor = weights.index_of(name);
  std::vector<std::byte> bytes(weights.tensors()[tensor].bytes);
  weights.read(tensor, in(bytes));
  return bytes;
}

inline void expect_message(const std::exception_ptr& failure, const std::string& part) {
  EXPECT_NE(text(failure).find(part), std::string::npos) << text(failure) << "\nexpected " << part;
}

// Writes a checkpoint of random bytes, and returns those of each tensor.
inline std::vector<std::vector<std::byte>> write_random(const std::filesystem::path& path,
                                                        const std::vector<WeightSpec>& tensors,
                                                        WeightsWriterOptions options = {}) {
  WeightsWriter writer(path, tensors, std::move(options));
  std::vector<std::vector<std::byte>> all;
  for (const WeightSpec& spec : tensors) {
    const std::int64_t elements =
        std::accumulate(spec.shape.begin(), spec.shape.end(), std::int64_t{1}, std::multiplies<>{});
    all.push_back(random_bytes(static_cast<std::size_t>(elements) * bits_of(spec.type) / 8,
                               static_cast<unsigned>(all.size())));
    writer.write(spec.name, in(all.back()));
  }
  writer.finish();
  return all;
}

}  // namespace ps::test
