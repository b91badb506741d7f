#include "resample/support/rung.h"

#include <fmt/format.h>

#include <deque>
#include <optional>

#include "penstock/base/units.h"
#include "resample/support/case.h"
#include "support/check_cuda.h"

namespace ladder::resample {
namespace {

// The table's, which others follow where all are asked for.
constexpr Shape shapes[] = {{256, 500, 256, 256},
                            {64, 4096, 1024, 128},
                            {32, 50, 32, 16},
                            {32, 500, 256, 256},
                            {256, 500, 250, 32},
                            {1024, 500, 256, 256},
                            {512, 1000, 500, 64, ps::DType::f32},
                            {2048, 100, 50, 14, ps::DType::f32},
                            {16, 20000, 10000, 512},
                            {256, 1000, 256, 256, ps::DType::bf16, true}};
constexpr std::size_t in_table = 2;
// Both types, episodes of one length and of any, and rows that are not whole vectors.
constexpr Shape quick_shapes[] = {{32, 500, 256, 64},
                                  {16, 300, 100, 64, ps::DType::f32, true},
                                  {16, 100, 50, 14, ps::DType::f32}};

// Inside a function, so that it exists before the first file registers.
std::vector<RungKernels>& registered() {
  static std::vector<RungKernels> all;
  return all;
}

std::vector<Shape> shapes_for(const Context& context) {
  if (context.quick()) return {std::begin(quick_shapes), std::end(quick_shapes)};
  return {shapes, context.all_shapes() ? std::end(shapes) : shapes + in_table};
}

// The library's own operator, where its rung is linked in.
std::optional<Kernel> library_kernel() {
  for (const RungKernels& each : registered()) {
    if (each.rung == "library") return each.kernels().front();
  }
  return std::nullopt;
}

// What all rungs share: the cases.
class Problem {
 public:
  explicit Problem(Context& context)
      : stream_(context.device()), stop_(context.stop()), turns_(context.quick() ? 3 : 21) {
    ladder::check(cudaSetDevice(context.device().index()), "cudaSetDevice");
    for (const Shape& shape : shapes_for(context)) {
      for (const Clock clock : {Clock::regular, Clock::random}) {
        const Case& made = cases_.emplace_back(stream_, shape, clock);
        context.add_fact({"bytes_" + made.name(),
                          fmt::format("{}: {:.1f} MB to move", made.name(),
                                      static_cast<double>(made.bytes()) * 1e-6),
                          static_cast<double>(made.bytes())});
      }
    }
  }

  // Checks and times a rung's kernels in every case, by turns with the library's own operator and
  // with cudaMemcpy.
  std::vector<Row> rows(Context& context, const std::vector<Kernel>& kernels) const {
    const std::optional<Kernel> library = library_kernel();
    std::vector<Row> rows;
    for (const Case& each : cases_) {
      std::vector<Enqueue> work;
      std::vector<std::size_t> row_of;  // of each piece of work
      for (const Kernel& kernel : kernels) {
        rows.push_back({.label = kernel.label, .work = each.name()});
        rows.back().note = why_not(kernel, stream_.device());
        if (!rows.back().note.empty()) continue;
        each.check(kernel);
        // Not timed: the row would show another kernel's time under this one's name.
        if (const std::string why = each.why_left(kernel); !why.empty()) {
          rows.back().note = "left to the rung warp-search: " + why;
          continue;
        }
        if (const auto use = kernel.use.of(each.type())) rows.back().use = use();
        row_of.push_back(rows.size() - 1);
        work.push_back(each.run(kernel));
        rows.back().number = context.profile(stream_, [&] { work.back()(0); });
      }
      if (work.empty()) continue;
      if (library) work.push_back(each.run(*library));
      work.push_back(each.memcpy());
      const std::vector<double> seconds =
          interleaved_medians(stream_, work, {.turns = turns_, .warm_up = 2, .stop = stop_});
      for (std::size_t i = 0; i < row_of.size(); ++i) {
        Row& row = rows[row_of[i]];
        row.seconds = seconds[i];
        row.efficiency = seconds.back() / seconds[i];
        row.note = fmt::format("{}; cudaMemcpy {}",
                               ps::format_rate(static_cast<double>(each.bytes()) / seconds[i]),
                               ps::format_seconds(seconds.back()));
        if (!library) continue;
        row.library = seconds[seconds.size() - 2];
        row.note += fmt::format(", ps::resample {}", ps::format_seconds(*row.library));
      }
    }
    return rows;
  }

 private:
  ps::Stream stream_;
  std::stop_token stop_;
  int turns_;
  std::deque<Case> cases_;
};

}  // namespace

detail::Listed::Listed(RungKernels kernels) { registered().push_back(kernels); }

const std::vector<RungKernels>& all_kernels() { return registered(); }

std::vector<Row> measure(Context& context, const std::vector<Kernel>& kernels) {
  return context.shared<Problem>().rows(context, kernels);
}

}  // namespace ladder::resample
