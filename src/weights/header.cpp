#include "weights/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "weights/strict_json.h"

namespace ps::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

std::string tensor_in(std::string_view path, std::string_view tensor) {
  return fmt::format("{}: tensor {}", path, in_quotes(tensor));
}

// Collects the tensors of a header; only what one value alone shows is checked here.
class HeaderVisitor final : public JsonVisitor {
 public:
  explicit HeaderVisitor(std::string_view path) : path_(path) {}

  Header take() { return std::move(header_); }

  void enter_object() override {
    if (depth() == 0) return;
    if (depth() > 1) refuse(expected(), "an object");
    in_metadata_ = key(0) == metadata_key;
    type_.reset();
    shape_.reset();
    offsets_.reset();
  }

  void enter_array() override {
    if (depth() != 2 || in_metadata_) refuse(expected(), "an array");
    if (key(1) == "shape") {
      shape_.emplace();
    } else if (key(1) == "data_offsets") {
      offsets_.emplace();
    } else {
      refuse(expected(), "an array");
    }
  }

  void scalar(JsonScalar value) override {
    if (depth() == 2 && in_metadata_ && value.text() != nullptr) {
      header_.metadata.emplace(key(1), *value.text());
    } else if (depth() == 2 && !in_metadata_ && key(1) == "dtype") {
      type_ = type_in(value);
    } else if (depth() == 3) {
      number(value);
    } else {
      refuse(expected(), value.shown());
    }
  }

  void leave() override {
    if (depth() != 1 || in_metadata_) return;
    const auto missing = !type_      ? "dtype"
                         : !shape_   ? "shape"
                         : !offsets_ ? "data_offsets"
                                     : nullptr;
    const std::string where = tensor_in(path_, key(0));
    if (missing != nullptr) throw_invalid(where, fmt::format("the field {}", missing), "none");
    if (offsets_->size() != 2) {
      throw_invalid(where, "two data_offsets", std::to_string(offsets_->size()));
    }
    const auto [begin, end] = std::pair((*offsets_)[0], (*offsets_)[1]);
    if (begin > end) {
      throw_invalid(where, "data_offsets that do not decrease", fmt::format("{}, {}", begin, end));
    }
    header_.tensors.push_back({.name = key(0),
                               .type = *type_,
                               .shape = std::move(*shape_),
                               .offset = begin,
                               .bytes = end - begin});
  }

 private:
  std::string_view expected() const {
    if (depth() == 0) return "an object";
    if (depth() == 1) {
      return key(0) == metadata_key ? "an object of strings"
                                    : "an object with dtype, shape and data_offsets";
    }
    if (depth() == 3) return "whole numbers from 0 to 2^63 - 1";
    if (in_metadata_) return "a string";
    if (key(1) == "dtype") return "the name of a type";
    if (key(1) == "shape" || key(1) == "data_offsets") return "an array of whole numbers";
    return "no such field";
  }

  [[noreturn]] void refuse(std::string_view wanted, std::string_view given) const {
    std::string where = depth() == 0 ? std::string(path_) : tensor_in(path_, key(0));
    if (depth() > 0 && key(0) == metadata_key) where = fmt::format("{}: {}", path_, key(0));
    if (depth() > 1) where += fmt::format(", field {}", in_quotes(key(1)));
    throw_invalid(where, wanted, given);
  }

  WeightType type_in(const JsonScalar& value) const {
    if (value.text() == nullptr) refuse(expected(), value.shown());
    const auto type = find_weight_type(*value.text());
    if (!type) refuse("a type of the format, such as BF16", value.shown());
    return *type;
  }

  void number(const JsonScalar& value) {
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    const auto count = value.count();
    if (!count || *count > most) refuse(expected(), value.shown());
    if (key(1) == "shape") {
      shape_->push_back(static_cast<std::int64_t>(*count));
    } else {
      offsets_->push_back(*count);
    }
  }

  std::string_view path_;
  Header header_;
  bool in_metadata_ = false;
  std::optional<WeightType> type_;  // of the tensor at hand
  std::optional<std::vector<std::int64_t>> shape_;
  std::optional<std::vector<std::uint64_t>> offsets_;
};

}  // namespace

std::uint64_t header_length(std::span<const std::byte, length_bytes> first,
                            std::uint64_t file_bytes, std::string_view path) {
  std::uint64_t length = 0;
  std::memcpy(&length, first.data(), sizeof(length));
  if (length > longest_header) {
    throw_invalid(path, fmt::format("a header of at most {} bytes", longest_header),
                  fmt::format("{}; is it a safetensors file?", length));
  }
  if (length > file_bytes - length_bytes) {
    throw_invalid(path, fmt::format("a header of {} bytes after the first 8", length),
                  fmt::format("a file of {} bytes", file_bytes));
  }
  return length;
}

std::uint64_t bytes_of(WeightType type, std::span<const std::int64_t> shape,
                       std::string_view what) {
  std::size_t bits = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw_invalid(what, "extents of 0 or more", std::to_string(extent));
    bits = checked_mul(bits, static_cast<std::size_t>(extent), what);
  }
  bits = checked_mul(bits, bits_of(type), what);
  if (bits % 8 != 0) {
    throw_invalid(what, "elements that fill whole bytes", fmt::format("{} bits", bits));
  }
  return bits / 8;
}

Header parse_header(std::string_view json, std::uint64_t file_bytes, std::string_view path) {
  if (!json.starts_with('{')) {
    throw_invalid(path, "a header that begins with '{'",
                  json.empty() ? "an empty one" : in_quotes(json.substr(0, 1)));
  }
  HeaderVisitor visitor(path);
  visit_json(json, fmt::format("{}: header", path), 3, visitor);
  Header header = visitor.take();

  // Every byte belongs to one tensor: each begins where the one before it ends.
  std::ranges::stable_sort(header.tensors, {}, [](const WeightInfo& tensor) {
    return std::pair(tensor.offset, tensor.bytes);
  });
  std::uint64_t end = 0;
  const std::uint64_t start = length_bytes + json.size();
  for (WeightInfo& tensor : header.tensors) {
    const std::string where = tensor_in(path, tensor.name);
    if (tensor.offset != end) {
      throw_invalid(where, fmt::format("data that begins at {}, where the tensor before ends", end),
                    std::to_string(tensor.offset));
    }
    const std::uint64_t bytes = bytes_of(tensor.type, tensor.shape, where);
    if (tensor.bytes != bytes) {
      throw_invalid(where, fmt::format("{} bytes, as its dtype and shape say", bytes),
                    fmt::format("data_offsets of {} bytes", tensor.bytes));
    }
    end += bytes;  // below 2^63, as data_offsets are
    tensor.offset += start;
  }
  if (start + end != file_bytes) {
    throw_invalid(path, fmt::format("a file of {} bytes, as its header says", start + end),
                  fmt::format("{} bytes", file_bytes));
  }
  return header;
}

std::string format_header(std::span<const WeightInfo> tensors, const Metadata& metadata,
                          std::size_t alignment) {
  std::string json = "{";
  const auto separate = [&] { json += json.size() > 1 ? "," : ""; };
  if (!metadata.empty()) {
    json += fmt::format("\"{}\":{}", metadata_key, json_object(metadata, "metadata"));
  }
  for (const WeightInfo& tensor : tensors) {
    separate();
    json += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json_string(tensor.name, "name"), name(tensor.type),
                        fmt::join(tensor.shape, ","), tensor.offset, tensor.offset + tensor.bytes);
  }
  json += "}";
  const std::size_t whole = align_up(length_bytes + json.size(), alignment, "alignment");
  json.resize(whole - length_bytes, ' ');
  if (json.size() > longest_header) {
    throw_invalid("tensors", fmt::format("a header of at most {} bytes", longest_header),
                  std::to_string(json.size()));
  }
  const std::uint64_t length = json.size();
  std::string start(length_bytes, '\0');
  std::memcpy(start.data(), &length, sizeof(length));
  return start + json;
}

}  // namespace ps::detail
