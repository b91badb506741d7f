// penstock._core, the extension module under the Python modules of the package.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "array.h"
#include "bindings.h"
#include "device.h"
#include "errors.h"
#include "interpreter.h"
#include "penstock/measure/build.h"

NB_MODULE(_core, m) {
  using namespace ps::python;
  watch_exit();
  bind_errors();
  bind_device(m);
  bind_array(m);
  bind_transfers(m);
  bind_transform(m);
  bind_resample(m);
  bind_gemm(m);
  bind_route(m);
  bind_moe(m);
  bind_attention(m);
  bind_append_kv(m);
  bind_round_routes(m);
  bind_compress(m);
  bind_storage(m);
  bind_weights(m);
  bind_experts(m);
  bind_timeline(m);
  bind_pipeline(m);
  bind_streamed(m);
  bind_measure(m);
  m.def("version", [] { return ps::build_info().version; });
  m.def(
      "build_info",
      [] {
        const ps::BuildInfo build = ps::build_info();
        nanobind::dict stamp;
        stamp["commit"] = build.commit;
        stamp["cuda"] = build.cuda;
        return stamp;
      },
      nanobind::sig("def build_info() -> dict[str, str]"));
}
