// Lossless compression of bf16 values, for penstock/_compress.py.
#include <nanobind/stl/pair.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "bindings.h"
#include "call_stream.h"
#include "penstock/ops/compress.h"
#include "views.h"

namespace ps::python {
namespace {

// Bytes of NumPy, which has no bf16, as the values that they are.
TensorView as_values(const TensorView& view, bool bits) {
  if (!bits) return view;
  return {view.data(), DType::bf16, {view.elements() / 2}, view.place()};
}

std::size_t compress_array(nb::handle x, nb::handle out, bool bits) {
  const CallStream on;
  Views views(on);
  const CompressOptions options{.x = as_values(views.add(x, "x"), bits),
                                .out = views.add_written(out, "out")};
  return without_lock([&] { return compress(options); });
}

std::pair<std::int64_t, std::size_t> info_of(nb::handle compressed) {
  const CallStream on;
  Views views(on);
  const CompressedInfo info = compressed_info(views.add(compressed, "compressed"));
  return {info.elements, info.bytes};
}

void decompress_array(nb::handle compressed, nb::handle out, bool bits, int thread_blocks,
                      nb::handle stream) {
  const CallStream on = stream_or_current(stream, std::initializer_list{compressed, out});
  // A GPU may read page-locked memory. torch's C functions do not tell it from other host memory.
  const bool from_host = on.stream && !gpu_of(compressed);
  const CallStream source{on.stream, from_host ? nullptr : on.library};
  Views views(on), sources(source);
  const DecompressOptions options{.compressed = sources.add(compressed, "compressed"),
                                  .out = as_values(views.add_written(out, "out"), bits),
                                  .thread_blocks = thread_blocks};
  run_on(on.stream, [&](const Stream& own) { decompress(options, own); });
}

}  // namespace

void bind_compress(nb::module_& m) {
  m.def("compressed_bytes_limit", &compressed_bytes_limit, nb::arg("elements"),
        "Implements penstock.compressed_bytes_limit.");
  m.def("compress", &compress_array, nb::arg("x").none(), nb::arg("out").none(), nb::arg("bits"),
        nb::sig("def compress(x: typing.Any, out: typing.Any, bits: bool) -> int"),
        "Implements penstock.compress.");
  m.def("compressed_info", &info_of, nb::arg("compressed").none(),
        nb::sig("def compressed_info(compressed: typing.Any) -> tuple[int, int]"),
        "The number of elements and of bytes.");
  m.def("decompress", &decompress_array, nb::arg("compressed").none(), nb::arg("out").none(),
        nb::arg("bits"), nb::arg("thread_blocks"), nb::arg("stream").none(),
        nb::sig("def decompress(compressed: typing.Any, out: typing.Any, bits: bool, "
                "thread_blocks: int, stream: typing.Any) -> None"),
        "Implements penstock.decompress.");
}

}  // namespace ps::python
