#include "decode/support/rung.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "decode/support/plain_read.h"
#include "decode/support/tensors.h"
#include "penstock/base/units.h"
#include "penstock/host/cuda.h"
#include "support/check_cuda.h"
#include "support/interleaved.h"

namespace ladder::decode {
namespace {

struct Size {
  unsigned sequences;
  int keys;  // of a sequence, where all have the same number
};
constexpr Size full_size{16, 16384}, quick_size{4, 512};

std::vector<Kernels>& registered() {
  static std::vector<Kernels> all;
  return all;
}

// What all rungs share: works with the same bytes, whose sequences have equal lengths or not.
class Ladder {
 public:
  struct Work {
    std::string name;
    std::vector<int> lengths;
    double bytes = 0;  // of keys and values
  };

  explicit Ladder(ladder::Context& context) : stream_(context.device()) {
    ladder::check(cudaSetDevice(context.device().index()), "cudaSetDevice");
    const auto [sequences, keys] = context.quick() ? quick_size : full_size;
    works_ = {{fmt::format("{} x {}", sequences, keys), equal_lengths(sequences, keys)},
              {"half in one sequence", one_long(sequences, keys)}};
    for (Work& work : works_) work.bytes = Shape{.lengths = work.lengths}.bytes();
    const double bytes = works_.front().bytes;
    context.add_fact(
        {"kv_bytes", fmt::format("{:.1f} MB of keys and values", bytes * 1e-6), bytes});
  }

  const ps::Stream& stream() const { return stream_; }
  const std::vector<Work>& works() const { return works_; }
  const Tensors& tensors(const Work& work, bool paged) {
    const auto found = tensors_.find({&work, paged});
    if (found != tensors_.end()) return found->second;
    const Shape shape{.lengths = work.lengths, .paged = paged};
    return tensors_.try_emplace({&work, paged}, stream_, shape).first->second;
  }

 private:
  ps::Stream stream_;
  std::vector<Work> works_;
  std::map<std::pair<const Work*, bool>, Tensors> tensors_;
};

}  // namespace

const std::vector<Kernels>& all_kernels() { return registered(); }

detail::Registration::Registration(const Kernels& kernels) { registered().push_back(kernels); }

std::vector<ladder::Row> measure(ladder::Context& context, const Kernels& kernels) {
  auto& all = context.shared<Ladder>();
  const std::vector<Variant> variants = kernels.variants();
  std::vector<ladder::Row> rows;
  for (const Ladder::Work& one : all.works()) {
    const std::size_t first = rows.size();
    std::vector<ladder::Enqueue> work;
    for (const Variant& variant : variants) {
      const Tensors& tensors = all.tensors(one, variant.paged);
      const Problem p = tensors.problem();
      tensors.poison();
      variant.run(p, all.stream());
      const std::size_t checked = tensors.check(p);
      rows.push_back({.label = variant.label,
                      .work = one.name,
                      .note = fmt::format("{} elements checked", checked)});
      if (variant.use != nullptr) rows.back().use = variant.use();
      rows.back().number = context.profile(all.stream(), [&] { variant.run(p, all.stream()); });
      work.emplace_back([&all, p, run = variant.run](std::size_t) { run(p, all.stream()); });
    }
    const Problem p = all.tensors(one, variants.front().paged).problem();
    const auto half = static_cast<std::size_t>(one.bytes / 2);
    work.emplace_back([&all, p, half](std::size_t) {
      enqueue_plain_read(p.k, p.v, half, p.partials.stats, ps::cuda_stream(all.stream()));
    });
    const std::vector<double> seconds =
        ladder::interleaved_medians(all.stream(), work, {.stop = context.stop()});
    for (std::size_t i = first; i < rows.size(); ++i) {
      ladder::Row& row = rows[i];
      row.seconds = seconds[i - first];
      row.efficiency = seconds.back() / row.seconds;
      row.note = fmt::format("{}; plain read {}; {}", ps::format_rate(one.bytes / row.seconds),
                             ps::format_seconds(seconds.back()), row.note);
    }
  }
  return rows;
}

}  // namespace ladder::decode
