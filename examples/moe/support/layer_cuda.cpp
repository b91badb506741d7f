#include "moe/support/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "gemm/support/fill.h"
#include "penstock/base/error.h"
#include "penstock/host/cuda.h"

namespace ladder::moe {
namespace {

constexpr std::size_t element = sizeof(__nv_bfloat16);
constexpr int nan_byte = 0xff;

Shape checked(const Shape& shape) {
  const auto& [tokens, hidden, width, experts, choices] = shape;
  if (std::min({tokens, hidden, width, experts, choices}) < 1 || choices > experts) {
    ps::detail::throw_invalid(
        "shape",
        "tokens, hidden size, width, experts and choices of at least 1, at most "
        "as many choices as experts",
        fmt::format("{}, {}, {}, {}, {}", tokens, hidden, width, experts, choices));
  }
  return shape;
}

ps::DeviceBuffer numbers(const ps::Stream& stream, std::int64_t count, std::uint32_t seed) {
  const auto elements = static_cast<std::size_t>(count);
  ps::DeviceBuffer buffer(stream.device(), elements * element);
  gemm::fill_random(reinterpret_cast<__nv_bfloat16*>(buffer.view().data), elements, seed,
                    ps::cuda_stream(stream));
  return buffer;
}

template <class T>
ps::DeviceBuffer uploaded(const ps::Stream& stream, const std::vector<T>& values) {
  const ps::PinnedBuffer here(stream.device(), values.size() * sizeof(T));
  std::memcpy(here.view().data, values.data(), here.bytes());
  ps::DeviceBuffer there(stream.device(), here.bytes());
  ps::copy(there.view(), here.view(), stream);
  stream.synchronize();
  return there;
}

template <class T>
std::vector<T> downloaded(const ps::Stream& stream, const ps::MemoryView& from) {
  const ps::PinnedBuffer here(stream.device(), from.bytes);
  ps::copy(here.view(), from, stream);
  stream.synchronize();
  std::vector<T> values(from.bytes / sizeof(T));
  std::memcpy(values.data(), here.view().data, from.bytes);
  return values;
}

}  // namespace

Layer::Layer(const ps::Stream& stream, const Shape& shape)
    : stream_(stream),
      shape_(checked(shape)),
      x_(numbers(stream, shape.tokens * shape.hidden, 1)),
      gate_up_(numbers(stream, shape.experts * 2 * shape.width * shape.hidden, 2)),
      down_(numbers(stream, shape.experts * shape.hidden * shape.width, 3)),
      out_(stream.device(), x_.bytes()) {
  choose_experts();
  memory_ = ps::DeviceBuffer(stream.device(), ps::moe_workspace_bytes(options()));
  space_ = ps::detail::moe_workspace(shape.tokens * shape.choices, shape.experts, shape.hidden,
                                     shape.width, element);
}

void Layer::choose_experts() {
  // The same in every run. NOLINTNEXTLINE(bugprone-random-generator-seed)
  std::mt19937 random(4);
  const auto choices = static_cast<std::size_t>(shape_.choices);
  std::vector<std::int32_t> ids, order(static_cast<std::size_t>(shape_.experts));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t token = 0; token < shape_.tokens; ++token) {
    for (std::size_t k = 0; k < choices; ++k) {
      std::swap(order[k], order[k + random() % (order.size() - k)]);
      ids.push_back(order[k]);
    }
  }
  const std::vector<float> weights(ids.size(), 1.0F / static_cast<float>(shape_.choices));
  ids_ = uploaded(stream_, ids);
  weights_ = uploaded(stream_, weights);
}

ps::MoeOptions Layer::options() const {
  const auto& [tokens, hidden, width, experts, choices] = shape_;
  const auto view = [&](const ps::DeviceBuffer& buffer, ps::DType type, auto... extents) {
    return ps::TensorView(buffer.view().data, type, {extents...}, stream_.device().place());
  };
  return {.x = view(x_, ps::DType::bf16, tokens, hidden),
          .gate_up = view(gate_up_, ps::DType::bf16, experts, 2 * width, hidden),
          .down = view(down_, ps::DType::bf16, experts, hidden, width),
          .ids = view(ids_, ps::DType::i32, tokens, choices),
          .weights = view(weights_, ps::DType::f32, tokens, choices),
          .out = view(out_, ps::DType::bf16, tokens, hidden),
          .workspace = memory_.view()};
}

// What the products read.
ps::detail::MoeWork Layer::work() const {
  ps::detail::MoeWork work;
  work.tokens = shape_.tokens;
  work.choices = shape_.choices;
  work.hidden = shape_.hidden;
  work.width = shape_.width;
  work.experts = work.slot_count = shape_.experts;
  work.x = x_.view().data;
  work.x_row = work.held.gate_up_row = shape_.hidden;
  work.held.gate_up = gate_up_.view().data;
  work.held.gate_up_slot = 2 * shape_.width * shape_.hidden;
  work.held.down = down_.view().data;
  work.held.down_slot = shape_.hidden * shape_.width;
  work.held.down_row = shape_.width;
  work.space = space_;
  work.memory = memory_.view().data;
  return work;
}

void Layer::run(ps::MoeKernel kernel) const {
  ps::MoeOptions call = options();
  call.kernel = kernel;
  ps::moe(call, stream_);
}

void Layer::forget_results() const {
  ps::fill(out_.view(), nan_byte, stream_);
  ps::fill(memory_.view().sub(space_.h, space_.bytes - space_.h), nan_byte, stream_);
}

void Layer::put_items_back() const {
  // The third and the fourth counter: how many items have been taken from the tables.
  constexpr std::size_t counter = sizeof(std::uint32_t);
  ps::fill(memory_.view().sub(space_.counters + 2 * counter, 2 * counter), 0, stream_);
}

void Layer::combine() const { ps::moe_combine(options(), stream_); }

std::vector<std::uint16_t> Layer::result() const {
  return downloaded<std::uint16_t>(stream_, out_.view());
}

std::vector<unsigned> Layer::tiles() const {
  return downloaded<unsigned>(stream_, memory_.view().sub(space_.counters, 2 * sizeof(unsigned)));
}

}  // namespace ladder::moe
