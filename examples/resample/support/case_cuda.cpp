#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "penstock/base/checked.h"
#include "resample/support/case.h"

namespace ladder::resample {
namespace {

constexpr std::uint8_t poison = 0xFF;  // two of them are a NaN
constexpr std::size_t boundary = 256;  // that every part begins at
constexpr std::size_t page = 4096;     // copies of whole ones are the fastest
enum Part : std::size_t { values, times, lengths, at, results, parts };

std::size_t padded(std::size_t bytes) { return ps::ceil_div(bytes, boundary) * boundary; }

// How many sets must take turns for none to be in the cache when its turn comes.
std::size_t sets_of(const ps::Device& device, std::size_t bytes) {
  return std::clamp<std::size_t>(ps::ceil_div(3 * device.capabilities().l2_bytes, bytes), 2, 64);
}

template <class T>
ps::MemoryView bytes_of(const std::vector<T>& elements) {
  auto* const begin = const_cast<T*>(elements.data());
  return {reinterpret_cast<std::byte*>(begin), elements.size() * sizeof(T), {}};
}

// An element's bits out of its words, of which there are one or two.
std::uint32_t bits_at(const std::vector<std::uint16_t>& from, std::size_t element,
                      std::size_t words) {
  const std::uint32_t low = from[element * words];
  return words == 1 ? low : low | std::uint32_t{from[element * words + 1]} << 16;
}

}  // namespace

Case::Case(const ps::Stream& stream, const Shape& shape, Clock clock)
    : stream_(stream), shape_(shape), name_(resample::name(shape, clock)) {
  const Data data = make_data(shape, clock);
  expected_ = resample::expected(data);
  bytes_ = least_bytes(data);
  const ps::MemoryView given[] = {bytes_of(data.values), bytes_of(data.times),
                                  bytes_of(data.lengths), bytes_of(data.at)};
  std::size_t whole = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    part_bytes_[i] = i == results ? bytes_of(expected_).bytes : given[i].bytes;
    whole += padded(part_bytes_[i]);
  }
  const ps::Device device = stream.device();
  const std::size_t sets = sets_of(device, bytes_);
  const std::size_t copied = ps::ceil_div(bytes_ / 2, page) * page;
  for (std::size_t set = 0; set < sets; ++set) {
    sets_.push_back(
        {ps::DeviceBuffer(device, std::max(whole, copied)), ps::DeviceBuffer(device, copied)});
    for (std::size_t i = 0; i < results; ++i) {
      if (part_bytes_[i] == 0) continue;  // lengths, where all are the same
      // The first set comes from here, the others from it.
      ps::copy(part(set, i), set == 0 ? given[i] : part(0, i), stream, {.allow_pageable = true});
    }
  }
  stream.synchronize();
}

ps::MemoryView Case::part(std::size_t turn, std::size_t number) const {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < number; ++i) begin += padded(part_bytes_[i]);
  return sets_[turn % sets_.size()].memory.view().sub(begin, part_bytes_[number]);
}

Options Case::options(std::size_t turn) const {
  const ps::Place place = stream_.device().place();
  const std::int64_t b = shape_.episodes, s = shape_.samples, t = shape_.targets,
                     d = shape_.columns;
  Options options{.values = {part(turn, values).data, shape_.type, {b, s, d}, place},
                  .times = {part(turn, times).data, ps::DType::f32, {b, s}, place},
                  .at = {part(turn, at).data, ps::DType::f32, {b, t}, place},
                  .out = {part(turn, results).data, shape_.type, {b, t, d}, place}};
  if (shape_.ragged) options.lengths = {part(turn, lengths).data, ps::DType::i32, {b}, place};
  return options;
}

std::string Case::why_left(const Kernel& kernel) const {
  return resample::why_left(kernel, {.values = part(0, values).data,
                                     .out = part(0, results).data,
                                     .type = shape_.type,
                                     .samples = shape_.samples,
                                     .columns = shape_.columns});
}

void Case::check(const Kernel& kernel) const {
  ps::fill(part(0, results), poison, stream_);
  enqueue(kernel, options(0), stream_);
  std::vector<std::uint16_t> got(expected_.size());
  ps::copy(bytes_of(got), part(0, results), stream_, {.allow_pageable = true});
  stream_.synchronize();
  const std::size_t words = shape_.type == ps::DType::f32 ? 2 : 1;
  const std::size_t elements = got.size() / words;
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = elements; i-- > 0;) {
    if (bits_at(got, i, words) == bits_at(expected_, i, words)) continue;
    ++wrong;
    first = i;
  }
  if (wrong == 0) return;
  throw std::runtime_error(
      fmt::format("the kernel '{}' at {}: {} of {} elements are wrong; the first is {}: {:#06x} "
                  "in bits, not {:#06x}",
                  kernel.label, name_, wrong, elements, first, bits_at(got, first, words),
                  bits_at(expected_, first, words)));
}

Enqueue Case::run(const Kernel& kernel) const {
  return [this, kernel](std::size_t turn) { enqueue(kernel, options(turn), stream_); };
}

Enqueue Case::memcpy() const {
  return [this](std::size_t turn) {
    const Set& set = sets_[turn % sets_.size()];
    ps::copy(set.copied.view(), set.memory.view().sub(0, set.copied.bytes()), stream_);
  };
}

}  // namespace ladder::resample
