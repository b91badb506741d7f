// Rounding of routes to whole tiles, for penstock/_round_routes.py.
#include <fmt/format.h>
#include <nanobind/stl/string_view.h>

#include <initializer_list>
#include <string_view>

#include "bindings.h"
#include "call_pool.h"
#include "call_stream.h"
#include "penstock/base/error.h"
#include "penstock/ops/round_routes.h"
#include "views.h"

namespace ps::python {
namespace {

RoundScoring scoring_named(std::string_view name) {
  if (name == "softmax_topk" || name == "topk_softmax") return RoundScoring::softmax;
  if (name == "sigmoid") return RoundScoring::sigmoid;
  throw InvalidArgument("scoring", "'softmax_topk', 'topk_softmax' or 'sigmoid'",
                        fmt::format("'{}'", name));
}

void round_arrays(nb::handle logits, nb::handle ids, nb::handle weights, nb::handle rounded_ids,
                  nb::handle rounded_weights, nb::handle changes, std::int64_t tile,
                  std::string_view scoring, nb::handle stream) {
  const CallStream on = stream_or_current(stream, std::initializer_list{logits, ids, weights});
  Views views(on);
  RoundRoutesOptions options{
      .logits = views.add(logits, "logits"),
      .ids = views.add(ids, "ids"),
      .weights = views.add(weights, "weights"),
      .rounded_ids = views.add_written(rounded_ids, "rounded_ids"),
      .rounded_weights = views.add_written(rounded_weights, "rounded_weights"),
      .changes = views.add_written(changes, "changes"),
      .tile = tile,
      .scoring = scoring_named(scoring)};
  options.pool = &call_pool(on.stream ? on.stream->device() : Device::cpu());
  run_on(on.stream, [&](const Stream& own) { round_routes(options, own); });
}

}  // namespace

void bind_round_routes(nb::module_& m) {
  m.def("round_routes", &round_arrays, nb::arg("logits").none(), nb::arg("ids").none(),
        nb::arg("weights").none(), nb::arg("rounded_ids").none(), nb::arg("rounded_weights").none(),
        nb::arg("changes").none(), nb::arg("tile"), nb::arg("scoring"), nb::arg("stream").none(),
        nb::sig("def round_routes(logits: typing.Any, ids: typing.Any, weights: typing.Any, "
                "rounded_ids: typing.Any, rounded_weights: typing.Any, changes: typing.Any, "
                "tile: int, scoring: str, stream: typing.Any) -> None"),
        "Implements penstock.round_routes.");
}

}  // namespace ps::python
