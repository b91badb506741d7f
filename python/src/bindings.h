// The functions that add the parts of the module to it.
#pragma once

#include <nanobind/nanobind.h>

namespace ps::python {

namespace nb = nanobind;

void bind_transfers(nb::module_& m);
void bind_transform(nb::module_& m);
void bind_resample(nb::module_& m);
void bind_gemm(nb::module_& m);
void bind_route(nb::module_& m);
void bind_moe(nb::module_& m);
void bind_experts(nb::module_& m);
void bind_packed_experts(nb::module_& m);  // by bind_experts(), which has the types that it needs
void bind_attention(nb::module_& m);
void bind_append_kv(nb::module_& m);
void bind_round_routes(nb::module_& m);
void bind_compress(nb::module_& m);
void bind_storage(nb::module_& m);
void bind_weights(nb::module_& m);
void bind_timeline(nb::module_& m);
void bind_pipeline(nb::module_& m);
void bind_streamed(nb::module_& m);
void bind_measure(nb::module_& m);

}  // namespace ps::python
