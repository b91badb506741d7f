// Routing of tokens to experts, for penstock/_route.py.
#include <fmt/format.h>
#include <nanobind/stl/string_view.h>

#include <initializer_list>
#include <string_view>

#include "bindings.h"
#include "call_stream.h"
#include "penstock/base/error.h"
#include "penstock/ops/route.h"
#include "views.h"

namespace ps::python {
namespace {

RouteScoring scoring_named(std::string_view name) {
  if (name == "softmax_topk") return RouteScoring::softmax_topk;
  if (name == "topk_softmax") return RouteScoring::topk_softmax;
  if (name == "sigmoid") return RouteScoring::sigmoid;
  throw InvalidArgument("scoring", "'softmax_topk', 'topk_softmax' or 'sigmoid'",
                        fmt::format("'{}'", name));
}

// The library takes k from the shape of ids.
void check_width(const TensorView& chosen, const char* argument, std::int64_t k) {
  if (chosen.rank() == 2 && chosen.extent(1) == k) return;
  throw InvalidArgument(argument, fmt::format("a row of k = {} elements per token", k),
                        chosen.describe());
}

void route_arrays(nb::handle logits, std::int64_t k, nb::handle ids, nb::handle weights,
                  std::string_view scoring, nb::handle bias, int groups, int top_groups,
                  bool renormalise, float scale, nb::handle stream) {
  const CallStream on = stream_or_current(stream, std::initializer_list{logits, ids, weights});
  Views views(on);
  const RouteOptions options{.logits = views.add(logits, "logits"),
                             .bias = views.add(bias, "bias"),
                             .ids = views.add_written(ids, "ids"),
                             .weights = views.add_written(weights, "weights"),
                             .scoring = scoring_named(scoring),
                             .groups = groups,
                             .top_groups = top_groups,
                             .renormalise = renormalise,
                             .scale = scale};
  check_width(options.ids, "ids", k);
  check_width(options.weights, "weights", k);
  run_on(on.stream, [&](const Stream& own) { route(options, own); });
}

}  // namespace

void bind_route(nb::module_& m) {
  m.def("route", &route_arrays, nb::arg("logits").none(), nb::arg("k"), nb::arg("ids").none(),
        nb::arg("weights").none(), nb::arg("scoring"), nb::arg("bias").none(), nb::arg("groups"),
        nb::arg("top_groups"), nb::arg("renormalise"), nb::arg("scale"), nb::arg("stream").none(),
        nb::sig("def route(logits: typing.Any, k: int, ids: typing.Any, weights: typing.Any, "
                "scoring: str, bias: typing.Any, groups: int, top_groups: int, renormalise: bool, "
                "scale: float, stream: typing.Any) -> None"),
        "Implements penstock.route.");
}

}  // namespace ps::python
