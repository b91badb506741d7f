// Memory of the library as Python sees it: shape, element type, place, shared without copying.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <memory>
#include <optional>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps::python {

namespace nb = nanobind;

// True while a slot belongs to the stage that was given it.
using Lease = std::shared_ptr<const bool>;

class Array {
 public:
  // `memory` keeps the bytes alive. It is no Python object: NumPy hides what its arrays hold from
  // the collector, so a pipeline held by views that its own stages keep would never go. The bytes
  // are ready in the order of `stream`, if there is one.
  Array(TensorView view, std::shared_ptr<const void> memory, Lease lease = nullptr,
        std::optional<Stream> stream = std::nullopt);

  // Throws when the slot went back to its ring.
  const TensorView& view() const;

  const TensorView& shape_of() const { return view_; }  // valid for good, unlike the bytes

  // Along the first dimension; the index is inside.
  Array part(std::int64_t index) const;
  Array range(std::int64_t begin, std::int64_t count) const;

  nb::object export_dlpack(nb::handle self, nb::handle stream, nb::handle max_version,
                           nb::handle device, nb::handle copy) const;
  int fill_buffer(PyObject* self, Py_buffer* buffer, int flags) const;

 private:
  TensorView view_;
  std::shared_ptr<const void> memory_;
  Lease lease_;
  std::optional<Stream> stream_;
  std::array<Py_ssize_t, max_rank> shape_{}, strides_{};  // as the buffer protocol wants them
};

void bind_array(nb::module_& m);

}  // namespace ps::python
