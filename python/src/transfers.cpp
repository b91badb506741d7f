// Copies, and the kernel with a known amount of arithmetic.
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>

#include "bindings.h"
#include "borrowed.h"
#include "call_stream.h"
#include "interpreter.h"
#include "penstock/base/error.h"
#include "penstock/ops/iterate.h"

namespace ps::python {
namespace {

void copy_array(nb::handle dst, nb::handle src, nb::handle stream, bool allow_pageable) {
  const std::optional<Stream> on = stream_for(stream, std::initializer_list{dst, src});
  const Borrowed to(dst, {.argument = "dst",
                          .access = Access::write,
                          .elements = Elements::bytes,
                          .stream = pointer_to(on)});
  const Borrowed from(src,
                      {.argument = "src", .elements = Elements::bytes, .stream = pointer_to(on)});
  const MemoryView a = to.memory(), b = from.memory();
  if (on) {
    without_lock([&] { copy(a, b, *on, {.allow_pageable = allow_pageable}); });
    return;
  }
  if (a.bytes != b.bytes) {
    throw InvalidArgument("dst", std::to_string(b.bytes) + " bytes, the size of src",
                          std::to_string(a.bytes) + " bytes");
  }
  without_lock([&] { std::memmove(a.data, b.data, b.bytes); });
}

void iterate_array(nb::handle in, nb::handle out, int rounds, nb::handle stream) {
  const nb::handle into = out.is_none() ? in : out;
  const std::optional<Stream> on = stream_for(stream, std::initializer_list{in, into});
  const Borrowed x(in, {.argument = "x", .stream = pointer_to(on)});
  const Borrowed y(
      into,
      {.argument = out.is_none() ? "x" : "out", .access = Access::write, .stream = pointer_to(on)});
  const IterateOptions options{.in = x.view(), .out = y.view(), .rounds = rounds};
  without_lock([&] {
    if (on) return iterate(options, *on);
    const Stream own(Device::cpu());
    iterate(options, own);
    own.synchronize();
  });
}

}  // namespace

void bind_transfers(nb::module_& m) {
  m.def("copy", &copy_array, nb::arg("dst").none(), nb::arg("src").none(),
        nb::arg("stream") = nb::none(), nb::kw_only(), nb::arg("allow_pageable") = false,
        nb::sig("def copy(dst: typing.Any, src: typing.Any, stream: typing.Any = None, *, "
                "allow_pageable: bool = False) -> None"),
        R"(Copies src to dst. Both are contiguous and have the same number of bytes.

If either is on a GPU, the copy is enqueued on `stream`, and both must stay alive until it is done.
Pageable host memory makes the call wait, and is refused unless `allow_pageable` is True. If both are
in host memory, the copy is done when the call returns.

>>> import penstock
>>> array = penstock.empty(5, "u8")
>>> penstock.copy(array, b"slots")
>>> bytes(array)
b'slots'
)");
  m.def(
      "iterate", &iterate_array, nb::arg("x").none(), nb::arg("out") = nb::none(),
      nb::arg("rounds") = 1, nb::arg("stream") = nb::none(),
      nb::sig("def iterate(x: typing.Any, out: typing.Any = None, rounds: int = 1, stream: "
              "typing.Any = None) -> None"),
      R"(Applies `rounds` multiply-adds to every f32 element of x, and writes to `out` or in place.

It is a known amount of arithmetic, for measuring overlap with copies. On a GPU it is enqueued on
`stream`; on the CPU it is done when the call returns.

>>> import numpy, penstock
>>> x = numpy.ones(4, numpy.float32)
>>> penstock.iterate(x, rounds=100)
>>> bool((x == 1).all())  # 1 is its fixed point
True
)");
}

}  // namespace ps::python
