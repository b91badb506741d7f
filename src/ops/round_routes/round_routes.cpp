#include "penstock/ops/round_routes.h"

#include <array>
#include <string>

#include "ops/arguments.h"
#include "ops/round_routes/work.h"
#include "ops/route/work.h"
#include "ops/scratch.h"
#include "penstock/base/error.h"

namespace ps {
namespace detail {
namespace {

constexpr std::int64_t most_tokens = (std::int64_t{1} << 31) - 1;

void check_logits(const TensorView& logits) {
  check_route_logits(logits);
  if (logits.extent(0) > most_tokens) {
    throw_invalid("logits", "fewer than 2^31 tokens", logits.describe());
  }
}

std::size_t workspace_bytes(const TensorView& logits) {
  return RoundingWork::cut_bytes + static_cast<std::size_t>(logits.elements()) * 4;
}

struct Arguments {
  Named logits, ids, weights, rounded_ids, rounded_weights, changes;

  explicit Arguments(const RoundRoutesOptions& options)
      : logits{"logits", options.logits},
        ids{"ids", options.ids},
        weights{"weights", options.weights},
        rounded_ids{"rounded_ids", options.rounded_ids},
        rounded_weights{"rounded_weights", options.rounded_weights},
        changes{"changes", options.changes} {}

  std::array<Named, 6> all() const {
    return {logits, ids, weights, rounded_ids, rounded_weights, changes};
  }
};

void check_inputs(const Arguments& arguments) {
  const TensorView& logits = arguments.logits.view;
  check_logits(logits);
  const std::int64_t tokens = logits.extent(0);
  const TensorView& ids = arguments.ids.view;
  check_type(arguments.ids, {DType::i32, DType::i64});
  if (ids.rank() != 2 || ids.extent(0) != tokens || ids.extent(1) < 1 ||
      ids.extent(1) > route_most_choices) {
    throw_invalid("ids",
                  "shape (" + std::to_string(tokens) + ", K): tokens, and K of 1 to " +
                      std::to_string(route_most_choices) + " choices",
                  described(ids));
  }
  check_type(arguments.weights, {DType::f32});
  check_same_shape(arguments.weights, arguments.ids);
  check_contiguous(arguments.ids);
  check_contiguous(arguments.weights);
}

void check_results(const Arguments& arguments) {
  const TensorView& ids = arguments.ids.view;
  const TensorView& rounded = arguments.rounded_ids.view;
  check_same_type(arguments.rounded_ids, arguments.ids);
  if (rounded.rank() != 2 || rounded.extent(0) != ids.extent(0) ||
      rounded.extent(1) < ids.extent(1) || rounded.extent(1) > route_most_choices) {
    throw_invalid("rounded_ids",
                  "shape (" + std::to_string(ids.extent(0)) + ", P): tokens, and P of " +
                      std::to_string(ids.extent(1)) + " to " + std::to_string(route_most_choices) +
                      " places",
                  described(rounded));
  }
  check_type(arguments.rounded_weights, {DType::f32});
  check_same_shape(arguments.rounded_weights, arguments.rounded_ids);
  check_contiguous(arguments.rounded_ids);
  check_contiguous(arguments.rounded_weights);
  if (!given(arguments.changes.view)) return;
  check_type(arguments.changes, {DType::i32});
  check_shape(arguments.changes, {arguments.logits.view.extent(1)}, "experts");
  check_contiguous(arguments.changes);
}

RoundingWork checked(const RoundRoutesOptions& options, const Device& device) {
  const Arguments arguments(options);
  check_inputs(arguments);
  check_results(arguments);
  if (options.tile < 1) throw_invalid("tile", "1 or more", std::to_string(options.tile));
  if (options.scoring > RoundScoring::sigmoid) {
    throw_invalid("scoring", "softmax or sigmoid",
                  std::to_string(static_cast<int>(options.scoring)));
  }
  const Named inputs[] = {arguments.logits, arguments.ids, arguments.weights};
  const Named results[] = {arguments.rounded_ids, arguments.rounded_weights, arguments.changes};
  for (const Named& each : inputs) check_memory(each, device);
  for (const Named& each : results) {
    check_memory(each, device);
    check_apart(each, inputs);
  }
  check_apart(results[1], results[0]);
  check_apart(results[2], results[0]);
  check_apart(results[2], results[1]);
  const std::size_t bytes = workspace_bytes(options.logits);
  if (options.workspace.data == nullptr) {
    check_pool(options.pool, bytes, device);
  } else {
    check_workspace(options.workspace, bytes, device, arguments.all());
  }
  return {.tokens = options.logits.extent(0),
          .experts = static_cast<int>(options.logits.extent(1)),
          .choices = static_cast<int>(options.ids.extent(1)),
          .places = static_cast<int>(options.rounded_ids.extent(1)),
          .tile = options.tile,
          .sigmoid = options.scoring == RoundScoring::sigmoid,
          .logit_type = options.logits.dtype(),
          .wide_ids = options.ids.dtype() == DType::i64,
          .logits = options.logits.data(),
          .logit_row = step(options.logits, 0),
          .ids = options.ids.data(),
          .weights = static_cast<const float*>(options.weights.data()),
          .rounded_ids = options.rounded_ids.data(),
          .rounded_weights = static_cast<float*>(options.rounded_weights.data()),
          .changes = static_cast<std::int32_t*>(options.changes.data()),
          .memory = options.workspace.data};
}

void run(const RoundingWork& work, const Stream& stream) {
  if (stream.device().kind() == DeviceKind::cpu) return round_routes_cpu(work, stream);
  round_routes_portable(work, stream);
}

}  // namespace
}  // namespace detail

std::size_t round_routes_workspace_bytes(const RoundRoutesOptions& options) {
  detail::check_logits(options.logits);
  return detail::workspace_bytes(options.logits);
}

void round_routes(const RoundRoutesOptions& options, const Stream& stream) {
  detail::RoundingWork work = detail::checked(options, stream.device());
  detail::require_compute(stream.device(), "round_routes");
  if (work.memory != nullptr) return detail::run(work, stream);
  const detail::Scratch scratch(*options.pool, detail::workspace_bytes(options.logits), stream);
  work.memory = scratch.data();
  detail::run(work, stream);
}

}  // namespace ps
