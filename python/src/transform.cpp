// Elementwise functions, for penstock/transform.py.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "borrowed.h"
#include "call_stream.h"
#include "elementwise.h"
#include "interpreter.h"
#include "penstock/base/error.h"
#include "penstock/ops/transform.h"

namespace ps::python {
namespace {

TransformKernel kernel_named(std::string_view name) {
  if (name == "best") return TransformKernel::best;
  if (name == "portable") return TransformKernel::portable;
  if (name == "sm90") return TransformKernel::sm90;
  throw InvalidArgument("kernel", "'best', 'portable' or 'sm90'", "'" + std::string(name) + "'");
}

// The name of the argument in Python, where `in` is a keyword.
std::string name_in_python(const std::string& argument) {
  if (argument == "in") return "x";
  return argument.starts_with("in[") ? "inputs" + argument.substr(2) : argument;
}

// The same within a sentence.
std::string text_in_python(std::string text) {
  for (const auto& [from, to] : {std::pair("of in ", "of x "), std::pair("of in,", "of x,"),
                                 std::pair("of in[", "of inputs[")}) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from)) {
      text.replace(at, std::string_view(from).size(), to);
    }
  }
  return text;
}

void run(const Elementwise& function, const ElementwiseCall& call,
         const std::optional<Stream>& stream) {
  try {
    if (stream) return function.run(call, *stream);
    const Stream own(Device::cpu());
    function.run(call, own);
    own.synchronize();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(name_in_python(error.argument()), text_in_python(error.expected()),
                          text_in_python(error.given()));
  }
}

void elementwise(const std::string& name, const std::vector<nb::object>& inputs, nb::handle out,
                 float a, float b, nb::handle stream, const std::string& kernel) {
  const Elementwise& function = elementwise_named(name);
  function.check_inputs(inputs.size());
  ElementwiseCall call{.in = {}, .out = {}, .a = a, .b = b, .kernel = kernel_named(kernel)};
  std::vector<nb::handle> arrays(inputs.begin(), inputs.end());
  arrays.push_back(out);
  const std::optional<Stream> on = stream_for(stream, arrays);
  std::vector<Borrowed> held;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string argument = function.input(i);
    held.emplace_back(inputs[i],
                      BorrowOptions{.argument = argument.c_str(), .stream = pointer_to(on)});
    call.in.push_back(held.back().view());
  }
  const Borrowed result(out,
                        {.argument = "out", .access = Access::write, .stream = pointer_to(on)});
  call.out = result.view();
  without_lock([&] { run(function, call, on); });
}

}  // namespace

void bind_transform(nb::module_& m) {
  m.def(
      "elementwise", &elementwise, nb::arg("function"), nb::arg("inputs"), nb::arg("out").none(),
      nb::arg("a") = 1.0F, nb::arg("b") = 1.0F, nb::arg("stream") = nb::none(),
      nb::arg("kernel") = "best",
      nb::sig("def elementwise(function: str, inputs: collections.abc.Sequence[typing.Any], out: "
              "typing.Any, a: float = 1.0, b: float = 1.0, stream: typing.Any = None, kernel: str "
              "= 'best') -> None"),
      "Implements penstock.transform.");
}

}  // namespace ps::python
