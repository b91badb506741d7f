// Matrix products, for penstock/_gemm.py.
#include <fmt/format.h>
#include <nanobind/stl/string_view.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "bindings.h"
#include "call_stream.h"
#include "penstock/base/error.h"
#include "penstock/ops/gemm.h"
#include "views.h"

namespace ps::python {
namespace {

GemmKernel gemm_kernel_named(std::string_view wanted) {
  std::string names;
  for (const GemmKernel kernel : gemm_kernels()) {
    if (name(kernel) == wanted) return kernel;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name(kernel));
  }
  throw InvalidArgument("kernel", "one of " + names, fmt::format("'{}'", wanted));
}

void gemm_arrays(nb::handle a, nb::handle b, nb::handle out, std::string_view kernel,
                 nb::handle stream) {
  const CallStream on = stream_or_current(stream, std::initializer_list{a, b, out});
  Views views(on);
  const GemmOptions options{.a = views.add(a, "a"),
                            .b = views.add(b, "b"),
                            .out = views.add_written(out, "out"),
                            .kernel = gemm_kernel_named(kernel)};
  run_on(on.stream, [&](const Stream& own) { gemm(options, own); });
}

}  // namespace

void bind_gemm(nb::module_& m) {
  m.def("gemm", &gemm_arrays, nb::arg("a").none(), nb::arg("b").none(), nb::arg("out").none(),
        nb::arg("kernel"), nb::arg("stream").none(),
        nb::sig("def gemm(a: typing.Any, b: typing.Any, out: typing.Any, kernel: str, stream: "
                "typing.Any) -> None"),
        "Implements penstock.gemm.");
}

}  // namespace ps::python
