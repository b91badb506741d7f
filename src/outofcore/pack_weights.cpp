// Packs the experts of a checkpoint.
#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/outofcore/expert_file.h"
#include "weights/strict_json.h"

namespace ps {
namespace {

using detail::throw_invalid;

constexpr std::string_view layer_mark = "{layer}", expert_mark = "{expert}";

std::string replaced(std::string text, std::string_view mark, std::int64_t number) {
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    text.replace(at, mark.size(), std::to_string(number));
  }
  return text;
}

// One tensor of an expert, and where it belongs.
struct Part {
  const std::string& pattern;
  std::vector<std::int64_t> shape;  // of one expert, as in the checkpoint
  std::byte* to = nullptr;
};

// Data and bytes of a contiguous view, or of one whose strides are swapped.
std::byte* data_of(const TensorView& view) { return static_cast<std::byte*>(view.data()); }

std::vector<Part> parts_of(const ExpertShape& shape, const ExpertNames& names, MemoryView block) {
  const ExpertViews views = ExpertStore::views(shape, block);
  const std::int64_t d = shape.hidden, n = shape.width;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return shape.transposed ? std::vector{columns, rows} : std::vector{rows, columns};
  };
  std::vector<Part> parts;
  if (names.gate_up.empty()) {
    const std::size_t half = views.gate_up.bytes() / 2;
    parts.push_back({names.gate, {n, d}, data_of(views.gate_up)});
    parts.push_back({names.up, {n, d}, data_of(views.gate_up) + half});
  } else {
    parts.push_back({names.gate_up, matrix(2 * n, d), data_of(views.gate_up)});
  }
  parts.push_back({names.down, matrix(d, n), data_of(views.down)});
  if (shape.gate_up_bias) {
    parts.push_back({names.gate_up_bias, {2 * n}, data_of(views.gate_up_bias)});
  }
  if (shape.down_bias) parts.push_back({names.down_bias, {d}, data_of(views.down_bias)});
  return parts;
}

void check(const ExpertShape& shape, const ExpertNames& names) {
  const auto refuse = [](const char* name, const char* expected, const std::string& given) {
    throw_invalid(fmt::format("names.{}", name), expected,
                  given.empty() ? "none" : detail::in_quotes(given));
  };
  const bool separate = names.gate_up.empty();
  if (separate && names.gate.empty()) refuse("gate_up", "a name, or gate and up", "");
  if (separate && names.up.empty()) refuse("up", "a name, as gate has one", "");
  if (!separate && !names.gate.empty()) refuse("gate", "none, because gate_up is set", names.gate);
  if (!separate && !names.up.empty()) refuse("up", "none, because gate_up is set", names.up);
  if (separate && (shape.transposed || shape.layout != GateUpLayout::concatenated)) {
    refuse("gate", "none for a shape that is transposed or interleaved", names.gate);
  }
  if (names.down.empty()) refuse("down", "a name", "");
  if (shape.gate_up_bias == names.gate_up_bias.empty()) {
    refuse("gate_up_bias", "a name if the shape has this bias, else none", names.gate_up_bias);
  }
  if (shape.down_bias == names.down_bias.empty()) {
    refuse("down_bias", "a name if the shape has this bias, else none", names.down_bias);
  }
}

WeightRead read_of(const Weights& weights, const ExpertShape& shape, const Part& part,
                   std::int64_t layer, std::int64_t expert) {
  const bool stacked = part.pattern.find(expert_mark) == std::string::npos;
  const std::string name = replaced(replaced(part.pattern, layer_mark, layer), expert_mark, expert);
  const std::size_t index = weights.index_of(name);
  const WeightInfo& tensor = weights.tensors()[index];
  std::vector<std::int64_t> wanted = part.shape;
  if (stacked) wanted.insert(wanted.begin(), shape.experts);
  if (tensor.type != weight_type_of(shape.dtype) || tensor.shape != wanted) {
    throw_invalid(
        "tensor " + detail::in_quotes(name),
        fmt::format("{} ({})", ps::name(weight_type_of(shape.dtype)), fmt::join(wanted, ", ")),
        fmt::format("{} ({})", ps::name(tensor.type), fmt::join(tensor.shape, ", ")));
  }
  std::size_t bytes = size_of(shape.dtype);
  for (const std::int64_t extent : part.shape) bytes *= static_cast<std::size_t>(extent);
  WeightRead read{.tensor = index, .to = {part.to, bytes, {Memory::host}}};
  if (stacked) {
    read.first_row = expert;
    read.rows = 1;
  }
  return read;
}

}  // namespace

ExpertFileInfo pack_experts(const std::filesystem::path& path, const ExpertShape& shape,
                            const Weights& weights, const ExpertNames& names,
                            PackExpertsOptions options) {
  ExpertStore::block_bytes(shape);  // checks the shape
  check(shape, names);
  const auto fill = [&](std::int64_t layer, std::int64_t expert, const MemoryView& block) {
    std::vector<WeightRead> reads;
    for (const Part& part : parts_of(shape, names, block)) {
      reads.push_back(read_of(weights, shape, part, names.first_layer + layer, expert));
    }
    weights.read(reads);
  };
  return pack_experts(path, shape, fill, std::move(options));
}

}  // namespace ps
