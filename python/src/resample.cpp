// Resampling, for penstock/_resample.py.
#include <fmt/format.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "borrowed.h"
#include "call_stream.h"
#include "penstock/base/error.h"
#include "penstock/ops/resample.h"
#include "views.h"

namespace ps::python {
namespace {

ps::Outside outside_named(std::string_view name) {
  if (name == "clamp") return ps::Outside::clamp;
  if (name == "fill") return ps::Outside::fill;
  if (name == "extrapolate") return ps::Outside::extrapolate;
  if (name == "error") return ps::Outside::error;
  throw InvalidArgument("outside", "'clamp', 'fill', 'extrapolate' or 'error'",
                        fmt::format("'{}'", name));
}

ResampleKernel kernel_named(std::string_view name) {
  if (name == "best") return ResampleKernel::best;
  if (name == "deep") return ResampleKernel::deep;
  if (name == "wide") return ResampleKernel::wide;
  if (name == "brief") return ResampleKernel::brief;
  throw InvalidArgument("kernel", "'best', 'deep', 'wide' or 'brief'", fmt::format("'{}'", name));
}

// Reads the modes of all sensors, which Python encodes as numbers. For each sensor: its mode, its
// order, the number of its ranges, and for each range the begin, end, mode and order.
class Layout {
 public:
  explicit Layout(const std::vector<std::int64_t>& numbers) : numbers_(numbers) {}

  void read(Sensor& sensor) {
    sensor.mode = static_cast<Interpolation>(next());
    sensor.order = static_cast<Quaternion>(next());
    for (std::int64_t ranges = next(); ranges > 0; --ranges) {
      Columns columns{.begin = next(), .end = next()};
      columns.mode = static_cast<Interpolation>(next());
      columns.order = static_cast<Quaternion>(next());
      sensor.columns.push_back(columns);
    }
  }

 private:
  std::int64_t next() {
    if (at_ == numbers_.size()) {
      throw InvalidArgument("layout", "modes for every sensor",
                            fmt::format("{} numbers", numbers_.size()));
    }
    return numbers_[at_++];
  }

  const std::vector<std::int64_t>& numbers_;
  std::size_t at_ = 0;
};

// Adds a dimension for one episode.
TensorView alone(const TensorView& view) {
  std::array<std::int64_t, max_rank> shape{1}, strides{0};
  const std::size_t rank = std::min(view.rank(), max_rank - 1);
  for (std::size_t d = 0; d < rank; ++d) {
    shape[d + 1] = view.shape()[d];
    strides[d + 1] = view.strides()[d];
  }
  return {view.data(), view.dtype(), std::span<const std::int64_t>(shape.data(), rank + 1),
          std::span<const std::int64_t>(strides.data(), rank + 1), view.place()};
}

// Whether values have no dimension for episodes.
bool is_alone(const TensorView& values, nb::handle offsets) {
  return values.rank() == 2 && offsets.is_none();
}

std::int64_t element(const TensorView& whole, std::int64_t index) {
  const std::int64_t place = index * whole.strides()[0];
  return whole.dtype() == DType::i64 ? static_cast<const std::int64_t*>(whole.data())[place]
                                     : static_cast<const std::int32_t*>(whole.data())[place];
}

bool can_be_read(const TensorView& view) {
  return view.place().memory != Memory::device && view.rank() == 1 && view.elements() > 0 &&
         (view.dtype() == DType::i64 || view.dtype() == DType::i32);
}

// Checks that are cheap on host memory are always made, without `check`. The library makes the
// others.
void check_lengths(const TensorView& lengths, std::int64_t samples, int sensor) {
  if (!can_be_read(lengths)) return;
  for (std::int64_t i = 0; i < lengths.elements(); ++i) {
    const std::int64_t length = element(lengths, i);
    if (length >= 0 && length <= samples) continue;
    throw InvalidArgument(name_of("lengths", sensor),
                          fmt::format("lengths from 0 to {}, the number of samples", samples),
                          fmt::format("{} at [{}]", length, i));
  }
}

void check_offsets(const TensorView& offsets, std::int64_t samples, int sensor) {
  if (!can_be_read(offsets)) return;
  std::int64_t before = 0;
  for (std::int64_t i = 0; i < offsets.elements(); ++i) {
    const std::int64_t offset = element(offsets, i);
    if (offset < before || offset > samples) {
      throw InvalidArgument(
          name_of("offsets", sensor),
          fmt::format("non-decreasing offsets from 0 to {}, the number of samples", samples),
          fmt::format("{} at [{}]", offset, i));
    }
    before = offset;
  }
}

void check_ends(const Sensor& sensor, int number) {
  const std::size_t rank = sensor.values.rank();
  if (rank < 2) return;
  const std::int64_t samples = sensor.values.shape()[rank - 2];
  check_lengths(sensor.lengths, samples, number);
  check_offsets(sensor.offsets, samples, number);
}

// The library numbers every sensor. In Python a single sensor has no number: it is removed from
// messages.
std::string as_python_says(std::string text, bool numbered) {
  if (numbered) return text;
  for (const std::string_view said : {"sensors[0].", " of sensors[0]"}) {
    for (std::size_t at = text.find(said); at != std::string::npos; at = text.find(said)) {
      text.erase(at, said.size());
    }
  }
  return text;
}

// Runs `work` on the call's stream. Messages name arguments as Python does.
template <class Work>
void run(const std::optional<Stream>& stream, bool numbered, const Work& work) {
  try {
    run_on(stream, work);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(as_python_says(error.argument(), numbered),
                          as_python_says(error.expected(), numbered), error.given());
  }
}

// One array per sensor if sensors are numbered, or that of the only sensor.
class Arrays {
 public:
  Arrays(nb::handle given, bool numbered) : given_(given), numbered_(numbered) {
    if (numbered && !nb::isinstance<nb::list>(given)) throw nb::type_error("expected a list");
  }
  std::size_t size() const { return numbered_ ? nb::len(given_) : 1; }
  nb::handle operator[](std::size_t i) const {
    return numbered_ ? nb::handle(PyList_GET_ITEM(given_.ptr(), static_cast<Py_ssize_t>(i)))
                     : given_;
  }

 private:
  nb::handle given_;
  bool numbered_;
};

void resample_arrays(nb::handle all_values, nb::handle all_times, nb::handle all_lengths,
                     nb::handle all_offsets, const std::vector<std::int64_t>& layout, nb::handle at,
                     nb::handle out, nb::handle valid, std::string_view outside, double fill,
                     bool check, std::string_view kernel, nb::handle stream, bool numbered) {
  const Arrays values(all_values, numbered), times(all_times, numbered),
      lengths(all_lengths, numbered), offsets(all_offsets, numbered);
  const std::size_t count = values.size();
  if (times.size() != count || lengths.size() != count || offsets.size() != count) {
    throw InvalidArgument("times", fmt::format("{} of them, one per array in values", count),
                          fmt::format("{} times, {} lengths, {} offsets", times.size(),
                                      lengths.size(), offsets.size()));
  }
  ResampleOptions options{.sensors = std::vector<Sensor>(count),
                          .outside = outside_named(outside),
                          .fill = fill,
                          .check = check,
                          .kernel = kernel_named(kernel)};
  std::vector<nb::handle> arrays;
  arrays.reserve(count + 2);
  for (std::size_t i = 0; i < count; ++i) arrays.push_back(values[i]);
  arrays.insert(arrays.end(), {at, out});
  const CallStream on = stream_or_current(stream, arrays);
  Views views(on);
  Layout modes(layout);
  bool lone = false;
  for (std::size_t i = 0; i < count; ++i) {
    const int number = numbered ? static_cast<int>(i) : -1;
    Sensor& sensor = options.sensors[i];
    sensor.values = views.add(values[i], "values", number);
    sensor.times = views.add(times[i], "times", number);
    sensor.lengths = views.add(lengths[i], "lengths", number);
    sensor.offsets = views.add(offsets[i], "offsets", number);
    modes.read(sensor);
    if (is_alone(sensor.values, offsets[i])) {
      sensor.values = alone(sensor.values);
      lone = true;
    }
    check_ends(sensor, number);
  }
  options.at = views.add(at, "at");
  options.out = views.add_written(out, "out");
  options.valid = views.add_written(valid, "valid");
  if (lone) {
    options.out = alone(options.out);
    if (!valid.is_none()) options.valid = alone(options.valid);
  }
  run(on.stream, numbered, [&](const Stream& own) { resample(options, own); });
}

void gradient_arrays(nb::handle gradient, nb::handle times, nb::handle lengths, nb::handle offsets,
                     nb::handle at, nb::handle out, std::string_view outside, nb::handle stream) {
  const CallStream on = stream_or_current(stream, std::initializer_list{gradient, at, out});
  Views views(on);
  ResampleGradientOptions options{.gradient = views.add(gradient, "gradient"),
                                  .times = views.add(times, "times"),
                                  .lengths = views.add(lengths, "lengths"),
                                  .offsets = views.add(offsets, "offsets"),
                                  .at = views.add(at, "at"),
                                  .out = views.add_written(out, "out"),
                                  .outside = outside_named(outside)};
  if (is_alone(options.out, offsets)) {
    options.gradient = alone(options.gradient);
    options.out = alone(options.out);
  }
  run(on.stream, false, [&](const Stream& own) { resample_gradient(options, own); });
}

}  // namespace

void bind_resample(nb::module_& m) {
  m.def("resample", &resample_arrays, nb::arg("values").none(), nb::arg("times").none(),
        nb::arg("lengths").none(), nb::arg("offsets").none(), nb::arg("layout"),
        nb::arg("at").none(), nb::arg("out").none(), nb::arg("valid").none(), nb::arg("outside"),
        nb::arg("fill"), nb::arg("check"), nb::arg("kernel"), nb::arg("stream").none(),
        nb::arg("numbered"),
        nb::sig("def resample(values: typing.Any, times: typing.Any, lengths: typing.Any, offsets: "
                "typing.Any, layout: collections.abc.Sequence[int], at: "
                "typing.Any, out: typing.Any, valid: typing.Any, outside: str, fill: float, check: "
                "bool, kernel: str, stream: typing.Any, numbered: bool) -> None"),
        "Implements penstock.resample.");
  m.def("resample_gradient", &gradient_arrays, nb::arg("gradient").none(), nb::arg("times").none(),
        nb::arg("lengths").none(), nb::arg("offsets").none(), nb::arg("at").none(),
        nb::arg("out").none(), nb::arg("outside"), nb::arg("stream") = nb::none(),
        nb::sig("def resample_gradient(gradient: typing.Any, times: typing.Any, lengths: "
                "typing.Any, offsets: typing.Any, at: typing.Any, out: typing.Any, outside: str, "
                "stream: typing.Any = None) -> None"),
        "Implements the gradient of penstock.resample.");
}

}  // namespace ps::python
