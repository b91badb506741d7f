// Memory of other libraries, borrowed for a call: DLPack, or Python's buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "dlpack.h"
#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps::python {

namespace nb = nanobind;

enum class Access : std::uint8_t { read, write };
enum class Elements : std::uint8_t {
  typed,  // elements of a type in DType
  bytes,  // contiguous memory of any type, as bytes
};

// The name of an argument in messages: "sensors[2].values", or "at" if `sensor` is -1.
std::string name_of(const char* argument, int sensor);

struct BorrowOptions {
  const char* argument = "array";
  int sensor = -1;  // the sensor that it belongs to; -1: none
  Access access = Access::read;
  Elements elements = Elements::typed;
  const Stream* stream = nullptr;  // that will use GPU memory; passed to the array's owner
  bool ask_page_locked = false;    // find out whether memory is page-locked even without a stream
  // Set if `stream` is this library's current stream or all its arrays are on the CPU, so that the
  // owner need not know the stream. Such arrays are not held, and must outlive the call.
  const dlpack::Exchange* library = nullptr;

  std::string name() const { return name_of(argument, sensor); }
};

// The C functions that an array's library offers; null if it has none.
const dlpack::Exchange* exchange_of(nb::handle array);

// The memory of an array of `options.library`, which is not held. None for arrays of other
// libraries, or if DLPack cannot describe the array. Throws InvalidArgument as Borrowed does.
std::optional<TensorView> view_in_place(nb::handle array, const BorrowOptions& options);

// The index of the GPU that holds an array; none for host memory and for objects that are no
// arrays.
std::optional<int> gpu_of(nb::handle array);

// Holds what it borrowed until the last copy is destroyed, with the lock held.
class Borrowed {
 public:
  // Throws InvalidArgument naming the argument: other devices, element types, strides, or memory
  // that may not be written. TypeError where the object has no memory to share.
  Borrowed(nb::handle object, const BorrowOptions& options);

  const TensorView& view() const { return view_; }
  MemoryView memory() const { return view_.memory(); }

 private:
  void from_buffer(nb::handle object, const BorrowOptions& options);
  void from_dlpack(nb::handle object, const BorrowOptions& options);
  template <class M>
  void take(nb::handle capsule, const BorrowOptions& options);

  TensorView view_;
  std::shared_ptr<void> held_;
};

}  // namespace ps::python
