#include "penstock/ops/route.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/arguments.h"
#include "ops/route/work.h"
#include "penstock/base/error.h"

namespace ps {
namespace detail {

void check_route_logits(const TensorView& view) {
  const Named logits{"logits", view};
  check_type(logits, {DType::f32, DType::bf16, DType::f16});
  if (view.rank() != 2) throw_invalid("logits", "shape (T, E): tokens, experts", described(view));
  if (view.extent(1) < 1 || view.extent(1) > route_most_experts) {
    throw_invalid("logits", "1 to " + std::to_string(route_most_experts) + " experts",
                  view.describe());
  }
  check_last_contiguous(logits);
}

namespace {

void check_results(const RouteOptions& options) {
  const Named ids{"ids", options.ids}, weights{"weights", options.weights};
  check_type(ids, {DType::i32, DType::i64});
  check_type(weights, {DType::f32});
  const std::int64_t tokens = options.logits.extent(0), experts = options.logits.extent(1);
  const std::int64_t most = std::min<std::int64_t>(route_most_choices, experts);
  if (ids.view.rank() != 2 || ids.view.extent(0) != tokens || ids.view.extent(1) < 1 ||
      ids.view.extent(1) > most) {
    throw_invalid("ids",
                  "shape (" + std::to_string(tokens) + ", K): tokens, and K of 1 to " +
                      std::to_string(most) + " choices",
                  described(ids.view));
  }
  check_same_shape(weights, ids);
  check_contiguous(ids);
  check_contiguous(weights);
}

void check_scoring(const RouteOptions& options) {
  const bool sigmoid = options.scoring == RouteScoring::sigmoid;
  if (!sigmoid && options.scoring != RouteScoring::softmax_topk &&
      options.scoring != RouteScoring::topk_softmax) {
    throw_invalid("scoring", "softmax_topk, topk_softmax or sigmoid",
                  std::to_string(static_cast<int>(options.scoring)));
  }
  if (!std::isfinite(options.scale)) {
    throw_invalid("scale", "a finite number", std::to_string(options.scale));
  }
  if (!given(options.bias)) return;
  if (!sigmoid) {
    throw_invalid("bias", "none unless scoring is sigmoid", options.bias.describe());
  }
  const Named bias{"bias", options.bias};
  check_type(bias, {DType::f32});
  check_shape(bias, {options.logits.extent(1)}, "experts");
  check_contiguous(bias);
}

void check_groups(const RouteOptions& options) {
  const std::int64_t experts = options.logits.extent(1), groups = options.groups;
  if (groups < 1 || groups > route_most_groups || experts % groups != 0) {
    throw_invalid("groups",
                  "1 to " + std::to_string(route_most_groups) + ", a divisor of the " +
                      std::to_string(experts) + " experts",
                  std::to_string(groups));
  }
  if (groups > 1 && options.scoring != RouteScoring::sigmoid) {
    throw_invalid("groups", "1 unless scoring is sigmoid", std::to_string(groups));
  }
  if (options.top_groups < 1 || options.top_groups > groups) {
    throw_invalid("top_groups", "1 to " + std::to_string(groups) + ", the number of groups",
                  std::to_string(options.top_groups));
  }
  const std::int64_t choices = options.ids.extent(1), size = experts / groups;
  if (choices > size * options.top_groups) {
    throw_invalid(
        "top_groups", "enough groups for " + std::to_string(choices) + " choices",
        std::to_string(options.top_groups) + ", with " + std::to_string(size) + " experts each");
  }
}

RouteWork checked(const RouteOptions& options, const Device& device) {
  check_route_logits(options.logits);
  check_results(options);
  check_scoring(options);
  check_groups(options);
  const Named inputs[] = {{"logits", options.logits}, {"bias", options.bias}};
  const Named ids{"ids", options.ids}, weights{"weights", options.weights};
  for (const Named& each : {inputs[0], inputs[1], ids, weights}) check_memory(each, device);
  check_apart(ids, inputs);
  check_apart(weights, inputs);
  check_apart(weights, ids);
  // The exponentials of the other experts cancel out of renormalised weights.
  const bool softmax = options.scoring != RouteScoring::sigmoid;
  const bool only_chosen = softmax && options.renormalise;
  return {.tokens = options.logits.extent(0),
          .experts = static_cast<int>(options.logits.extent(1)),
          .choices = static_cast<int>(options.ids.extent(1)),
          .groups = options.groups,
          .top_groups = options.top_groups,
          .scoring = only_chosen ? RouteScoring::topk_softmax : options.scoring,
          .logit_type = options.logits.dtype(),
          .wide_ids = options.ids.dtype() == DType::i64,
          .renormalise = options.renormalise && !softmax,
          .scale = options.scale,
          .logits = options.logits.data(),
          .logit_row = step(options.logits, 0),
          .bias = static_cast<const float*>(options.bias.data()),
          .ids = options.ids.data(),
          .weights = static_cast<float*>(options.weights.data())};
}

}  // namespace
}  // namespace detail

void route(const RouteOptions& options, const Stream& stream) {
  const Device device = stream.device();
  const detail::RouteWork work = detail::checked(options, device);
  if (work.tokens == 0) return;
  detail::require_compute(device, "route");
  return device.kind() == DeviceKind::cpu ? detail::route_cpu(work, stream)
                                          : detail::route_portable(work, stream);
}

}  // namespace ps
