#include "penstock/ops/compress.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ops/arguments.h"
#include "ops/compress/format.h"
#include "ops/compress/work.h"
#include "penstock/base/error.h"

namespace ps {
namespace detail {
namespace {

void check_elements(std::string_view argument, std::int64_t elements) {
  if (elements >= 0 && elements <= compress_most_elements) return;
  throw_invalid(argument, "0 to 2^34 elements", std::to_string(elements));
}

void check_values(const Named& argument) {
  check_type(argument, {DType::bf16});
  check_contiguous(argument);
  check_elements(argument.argument, argument.view.elements());
}

void check_bytes(const Named& argument) {
  check_type(argument, {DType::u8});
  if (argument.view.rank() != 1) {
    throw_invalid(argument.argument, "one dimension: bytes", described(argument.view));
  }
  check_contiguous(argument);
}

void check_host_memory(const Named& argument) {
  const Place place = argument.view.place();
  if (place.memory == Memory::device && place.device != cpu_index) {
    throw_invalid(argument.argument, "host memory", described(argument.view));
  }
  check_memory(argument, Device::cpu());
}

// A GPU reads page-locked memory too.
void check_readable(const Named& argument, const Device& device) {
  const bool page_locked = argument.view.place().memory == Memory::pinned;
  if (device.kind() == DeviceKind::cpu || !page_locked) check_memory(argument, device);
}

CompressWork checked(const CompressOptions& options) {
  const Named x{"x", options.x}, out{"out", options.out};
  check_values(x);
  check_bytes(out);
  check_host_memory(x);
  check_host_memory(out);
  check_apart(out, x);
  return {.elements = static_cast<std::uint64_t>(options.x.elements()),
          .x = static_cast<const std::uint16_t*>(options.x.data()),
          .out = static_cast<std::byte*>(options.out.data()),
          .room = options.out.bytes()};
}

DecompressWork checked(const DecompressOptions& options, const Device& device) {
  const Named compressed{"compressed", options.compressed}, out{"out", options.out};
  check_bytes(compressed);
  check_values(out);
  const auto elements = static_cast<std::uint64_t>(options.out.elements());
  const std::uint64_t least = compression::segments_begin(elements);
  if (options.compressed.bytes() < least) {
    throw_invalid("compressed",
                  std::to_string(least) + " bytes or more, for the " + std::to_string(elements) +
                      " elements of out",
                  described(options.compressed));
  }
  if (options.thread_blocks < 0) {
    throw_invalid("thread_blocks", "0 or more", std::to_string(options.thread_blocks));
  }
  check_readable(compressed, device);
  check_memory(out, device);
  check_alignment(compressed, compression::unit);
  check_alignment(out, compression::unit);
  check_apart(out, compressed);
  return {.elements = elements,
          .compressed = static_cast<const std::byte*>(options.compressed.data()),
          .bytes = options.compressed.bytes(),
          .out = static_cast<std::uint16_t*>(options.out.data()),
          .thread_blocks = static_cast<unsigned>(options.thread_blocks)};
}

}  // namespace

void load_decompress(const Device& device) {
  if (device.kind() == DeviceKind::cpu) return;
  require_compute(device, "decompress");
  load_decompress_portable(device);
}

}  // namespace detail

std::size_t compressed_bytes_limit(std::int64_t elements) {
  detail::check_elements("elements", elements);
  const auto all = static_cast<std::uint64_t>(elements);
  const std::uint64_t whole = all / compression::segment_values;
  const auto rest = static_cast<unsigned>(all % compression::segment_values);
  return compression::segments_begin(all) +
         whole * compression::stored_bytes(compression::segment_values) +
         (rest > 0 ? compression::stored_bytes(rest) : 0);
}

std::size_t compress(const CompressOptions& options) {
  const detail::CompressWork work = detail::checked(options);
  const std::size_t bytes = detail::compress_cpu(work);
  if (bytes > work.room) {
    detail::throw_invalid("out", std::to_string(bytes) + " bytes or more",
                          detail::described(options.out));
  }
  return bytes;
}

CompressedInfo compressed_info(const TensorView& compressed) {
  const detail::Named argument{"compressed", compressed};
  detail::check_bytes(argument);
  detail::check_host_memory(argument);
  compression::Header header;
  if (compressed.bytes() < sizeof header) {
    detail::throw_invalid("compressed", "at least the 32 bytes of a header",
                          detail::described(compressed));
  }
  std::memcpy(&header, compressed.data(), sizeof header);
  const std::uint64_t least = compression::segments_begin(header.elements);
  if (!compression::is_header(header) || header.elements > detail::compress_most_elements ||
      header.bytes < least) {
    detail::throw_invalid("compressed", "data that compress() wrote, in this version's format",
                          "another header");
  }
  if (header.bytes > compressed.bytes()) {
    detail::throw_invalid("compressed", std::to_string(header.bytes) + " bytes, as its header says",
                          detail::described(compressed));
  }
  return {.elements = static_cast<std::int64_t>(header.elements), .bytes = header.bytes};
}

void decompress(const DecompressOptions& options, const Stream& stream) {
  const Device device = stream.device();
  const detail::DecompressWork work = detail::checked(options, device);
  if (work.elements == 0) return;
  detail::require_compute(device, "decompress");
  return device.kind() == DeviceKind::cpu ? detail::decompress_cpu(work, stream)
                                          : detail::decompress_portable(work, stream);
}

}  // namespace ps
