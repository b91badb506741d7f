#include "elementwise.h"

#include "penstock/base/error.h"

namespace ps::python {
namespace {

const std::vector<Elementwise>& functions() {
  static const std::vector<Elementwise> all = {
      {"cast",
       {"x"},
       [](const ElementwiseCall& c, const Stream& s) {
         cast({.in = c.in[0], .out = c.out, .kernel = c.kernel}, s);
       }},
      {"scale",
       {"x"},
       [](const ElementwiseCall& c, const Stream& s) {
         scale({.in = c.in[0], .out = c.out, .factor = c.a, .kernel = c.kernel}, s);
       }},
      {"axpby",
       {"x", "y"},
       [](const ElementwiseCall& c, const Stream& s) {
         axpby({.x = c.in[0], .y = c.in[1], .out = c.out, .a = c.a, .b = c.b, .kernel = c.kernel},
               s);
       }},
      {"add",
       {},
       [](const ElementwiseCall& c, const Stream& s) {
         add({.in = c.in, .out = c.out, .kernel = c.kernel}, s);
       }},
      {"mul",
       {"x", "y"},
       [](const ElementwiseCall& c, const Stream& s) {
         mul({.x = c.in[0], .y = c.in[1], .out = c.out, .kernel = c.kernel}, s);
       }},
      {"swiglu",
       {"gate", "up"},
       [](const ElementwiseCall& c, const Stream& s) {
         swiglu({.gate = c.in[0], .up = c.in[1], .out = c.out, .kernel = c.kernel}, s);
       }},
      {"gelu",
       {"x"},
       [](const ElementwiseCall& c, const Stream& s) {
         gelu({.in = c.in[0], .out = c.out, .kernel = c.kernel}, s);
       }},
      {"gelu_tanh",
       {"x"},
       [](const ElementwiseCall& c, const Stream& s) {
         gelu({.in = c.in[0], .out = c.out, .form = Gelu::tanh, .kernel = c.kernel}, s);
       }},
  };
  return all;
}

}  // namespace

std::string Elementwise::input(std::size_t number) const {
  return inputs.empty() ? "inputs[" + std::to_string(number) + "]" : inputs[number];
}

void Elementwise::check_inputs(std::size_t count) const {
  if (inputs.empty() || count == inputs.size()) return;
  throw InvalidArgument("inputs", std::to_string(inputs.size()) + " arrays", std::to_string(count));
}

const Elementwise& elementwise_named(std::string_view name) {
  for (const Elementwise& each : functions()) {
    if (each.name == name) return each;
  }
  throw InvalidArgument("function", "the name of an elementwise function", name);
}

}  // namespace ps::python
