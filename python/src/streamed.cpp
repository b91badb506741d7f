// Elementwise functions over more than a device has memory for; penstock.transform.Streamed.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "borrowed.h"
#include "device.h"
#include "elementwise.h"
#include "errors.h"
#include "interpreter.h"
#include "interruptible.h"
#include "penstock/base/error.h"
#include "penstock/outofcore/transform.h"
#include "penstock/trace/timeline.h"
#include "storage.h"

namespace ps::python {
namespace {

// An array in a file.
struct FileArray {
  std::string path;
  std::optional<DType> dtype;  // none: that of the inputs
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> count;  // none: to the end
};

// An argument: an array or a file.
struct Operand {
  std::string name;
  StreamedOperand streamed;
  std::optional<Borrowed> array{};  // none: a file
  std::uint64_t elements = 0;

  std::string describe() const {
    return array ? array->view().describe()
                 : fmt::format("{} in '{}'", ps::name(streamed.dtype), streamed.file.string());
  }
};

std::uint64_t elements_in(const FileArray& array, DType dtype, const std::string& argument) {
  if (array.count) return *array.count;
  const std::uint64_t size =
      without_lock([&] { return naming(array.path, [&] { return File(array.path).size(); }); });
  if (array.offset > size) {
    throw InvalidArgument(argument + ".offset",
                          fmt::format("at most {}, the size of the file", size),
                          std::to_string(array.offset));
  }
  const std::uint64_t left = size - array.offset;
  if (left % size_of(dtype) != 0) {
    throw InvalidArgument(
        argument + ".dtype",
        fmt::format("a type whose size divides the {} bytes from offset {} to the end", left,
                    array.offset),
        fmt::format("{}, which has {} bytes", name(dtype), size_of(dtype)));
  }
  return left / size_of(dtype);
}

Operand borrow(nb::handle object, std::string argument, Access access, const Device& device) {
  if (const std::optional<int> gpu = gpu_of(object)) {
    throw InvalidArgument(argument, "an array in host memory; use penstock.transform on a GPU",
                          fmt::format("memory of cuda:{}", *gpu));
  }
  const Borrowed array(object, {.argument = argument.c_str(),
                                .access = access,
                                .ask_page_locked = device.kind() == DeviceKind::cuda});
  const TensorView& view = array.view();
  if (!view.is_contiguous()) {
    throw InvalidArgument(argument, "a contiguous array", view.describe() + " with strides");
  }
  return {.name = std::move(argument),
          .streamed = {.dtype = view.dtype(), .memory = view.memory()},
          .array = array,
          .elements = static_cast<std::uint64_t>(view.elements())};
}

Operand input_from(nb::handle object, const std::string& argument, const Device& device) {
  if (!nb::isinstance<FileArray>(object)) return borrow(object, argument, Access::read, device);
  const auto& file = nb::cast<const FileArray&>(object);
  const DType dtype = file.dtype.value();
  // Not inside the braces: if that throws, GCC 12 destroys members that it has not constructed.
  const std::uint64_t elements = elements_in(file, dtype, argument);
  return {.name = argument,
          .streamed = {.dtype = dtype, .file = file.path, .offset = file.offset},
          .elements = elements};
}

Operand output_from(nb::handle object, const Operand& like, const Device& device) {
  if (!nb::isinstance<FileArray>(object)) return borrow(object, "out", Access::write, device);
  const auto& file = nb::cast<const FileArray&>(object);
  return {.name = "out",
          .streamed = {.dtype = file.dtype.value_or(like.streamed.dtype),
                       .file = file.path,
                       .offset = file.offset},
          .elements = file.count.value_or(like.elements)};
}

void check_type(const Operand& operand) {
  const DType type = operand.streamed.dtype;
  if (type == DType::f32 || type == DType::f16 || type == DType::bf16) return;
  throw InvalidArgument(operand.name, "elements of type f32, f16 or bf16", operand.describe());
}

// Checked here, since the function itself would fail only after the output file was emptied.
void check(const Elementwise& function, const std::vector<Operand>& operands) {
  const Operand& first = operands.front();
  for (const Operand& each : operands) {
    check_type(each);
    if (function.name != "cast" && each.streamed.dtype != first.streamed.dtype) {
      throw InvalidArgument(each.name,
                            fmt::format("elements of type {}, the type of {}",
                                        name(first.streamed.dtype), first.name),
                            each.describe());
    }
    if (each.elements != first.elements) {
      throw InvalidArgument(each.name,
                            fmt::format("{} elements, as many as {}", first.elements, first.name),
                            std::to_string(each.elements));
    }
  }
  // Files have no shape.
  const auto shaped = std::ranges::find_if(operands, [](const Operand& o) { return !!o.array; });
  for (auto each = shaped; each != operands.end(); ++each) {
    if (!each->array ||
        std::ranges::equal(each->array->view().shape(), shaped->array->view().shape())) {
      continue;
    }
    throw InvalidArgument(each->name,
                          fmt::format("the shape of {}, {}", shaped->name, shaped->describe()),
                          each->describe());
  }
}

// Replaces C++ names such as "in[1].memory" by the names in Python, also within a sentence.
std::string in_python(std::string text, const std::vector<Operand>& operands) {
  for (std::size_t i = 0; i + 1 < operands.size(); ++i) {
    const std::string name = fmt::format("in[{}]", i);
    if (const auto at = text.find(name); at != std::string::npos) {
      text.replace(at, name.size(), operands[i].name);
    }
  }
  for (const std::string_view part : {".memory", ".file"}) {
    if (text.ends_with(part)) text.resize(text.size() - part.size());
  }
  return text == "elements" ? operands.front().name + ".count" : text;
}

// Adds the path of the file that the message is about.
std::exception_ptr with_its_path(const std::exception_ptr& failure,
                                 const std::vector<Operand>& operands) {
  std::string found;
  try {
    std::rethrow_exception(failure);
  } catch (const SystemError& error) {
    for (const Operand& operand : operands) {
      const std::string path = operand.streamed.file.string();
      if (path.size() > found.size() &&
          std::string_view(error.what()).find(path) != std::string_view::npos) {
        found = path;
      }
    }
  } catch (...) {
    return failure;
  }
  return found.empty() ? failure : with_path(failure, found);
}

RunReport run(const StreamedTransformOptions& options, const StreamedRun& how,
              const std::vector<Operand>& operands) {
  try {
    return StreamedTransform(options).run(how);
  } catch (const PipelineError& error) {
    // The stage means nothing to the caller.
    std::rethrow_exception(with_its_path(error.cause(), operands));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(in_python(error.argument(), operands),
                          in_python(error.expected(), operands), error.given());
  } catch (const SystemError&) {
    std::rethrow_exception(with_its_path(std::current_exception(), operands));
  }
}

RunReport elementwise_streamed(const std::string& name, const std::vector<nb::object>& inputs,
                               nb::handle out, float a, float b, nb::handle device,
                               std::size_t device_bytes, std::size_t pinned_bytes,
                               const nb::object& progress, Timeline* recorder, nb::handle after,
                               bool flush) {
  const Elementwise& function = elementwise_named(name);
  function.check_inputs(inputs.size());
  StreamedTransformOptions options{
      .device = device_from(device), .device_bytes = device_bytes, .pinned_bytes = pinned_bytes};
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    operands.push_back(input_from(inputs[i], function.input(i), options.device));
    options.in.push_back(operands.back().streamed);
  }
  operands.push_back(output_from(out, operands.front(), options.device));
  options.out = operands.back().streamed;
  check(function, operands);
  options.elements = operands.front().elements;
  options.function = [&](const Piece& piece, const Stream& stream) {
    function.run({.in = {piece.in.begin(), piece.in.end()}, .out = piece.out, .a = a, .b = b},
                 stream);
  };

  std::stop_source stop;
  const StoppedAtExit stopped_at_exit([stop]() mutable { stop.request_stop(); });
  StreamedRun how{.stop = stop.get_token(),
                  .progress = listening(progress),
                  .recorder = recorder,
                  .flush = flush};
  if (!after.is_none()) how.after = stream_from(after, options.device);
  return without_lock([&] { return run(options, how, operands); });
}

nb::object type_of(const FileArray& array) {
  if (!array.dtype) return nb::none();
  return nb::cast(std::string(name(*array.dtype)));
}

}  // namespace

void bind_streamed(nb::module_& m) {
  nb::class_<FileArray>(m, "FileArray", "The base class of penstock.transform.FileArray.")
      .def(
          "__init__",
          [](FileArray* self, nb::handle path, const std::optional<std::string>& dtype,
             std::uint64_t offset, std::optional<std::uint64_t> count) {
            new (self) FileArray{.path = path_from(path),
                                 .dtype = dtype ? std::optional(parse_dtype(*dtype)) : std::nullopt,
                                 .offset = offset,
                                 .count = count};
          },
          nb::arg("path").none(), nb::arg("dtype").none(), nb::arg("offset"),
          nb::arg("count").none(),
          nb::sig("def __init__(self, path: str | bytes | os.PathLike[str], dtype: str | None, "
                  "offset: int, count: int | None) -> None"))
      .def_prop_ro("path",
                   [](const FileArray& f) {
                     return nb::steal<nb::str>(PyUnicode_DecodeFSDefault(f.path.c_str()));
                   })
      .def_prop_ro("dtype", &type_of, nb::sig("def dtype(self) -> str | None"),
                   "The element type: 'f32', 'f16' or 'bf16'.")
      .def_ro("offset", &FileArray::offset, "The byte at which the array starts.")
      .def_ro("count", &FileArray::count,
              "The number of elements; None for all to the end of the file.")
      .def("__repr__", [](const FileArray& f) {
        return fmt::format("<penstock.transform.FileArray {}[{}] in '{}'{}>",
                           f.dtype ? name(*f.dtype) : "?",
                           f.count ? std::to_string(*f.count) : "...", f.path,
                           f.offset > 0 ? fmt::format(" from byte {}", f.offset) : "");
      });
  m.def("elementwise_streamed", &elementwise_streamed, nb::arg("function"), nb::arg("inputs"),
        nb::arg("out").none(), nb::arg("a"), nb::arg("b"), nb::arg("device").none(),
        nb::arg("device_bytes"), nb::arg("pinned_bytes"), nb::arg("progress").none(),
        nb::arg("recorder").none(), nb::arg("after").none(), nb::arg("flush"),
        nb::sig("def elementwise_streamed(function: str, inputs: "
                "collections.abc.Sequence[typing.Any], out: typing.Any, a: float, b: float, "
                "device: str | Device | None, device_bytes: int, pinned_bytes: int, progress: "
                "collections.abc.Callable[[int, int], object] | None, recorder: Timeline | None, "
                "after: typing.Any, flush: bool) -> RunReport"),
        "Implements penstock.transform.Streamed.");
}

}  // namespace ps::python
