// Expert layers whose weights are in host memory: prompts and single tokens with an empty cache,
// beside the time in which the link alone moves the same experts, and beside kernels that read the
// experts in host memory; the same from compressed experts, beside the plain ones; single tokens of
// which the CPU computes some experts, beside the link and reads of the CPU at the same time; and
// tokens with a cache of a quarter of the experts, beside the best fixed set of that size and the
// best that any policy could do. Writes bench/results/expert_streaming.json.
//
//   bench_expert_streaming --output bench/results/expert_streaming.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/parallel.h"
#include "penstock/measure/expert_routing.h"
#include "penstock/measure/floor.h"
#include "penstock/measure/limits.h"
#include "penstock/measure/timing.h"
#include "penstock/outofcore/experts.h"
#include "support/expert_pass.h"
#include "support/guarded.h"
#include "support/host_reads.h"
#include "support/link_copies.h"
#include "support/results.h"

namespace {

using bench::choices;
using bench::ExpertPass;
using bench::generator;
using bench::Ids;
using bench::Json;
using bench::microseconds;
using Experts = std::vector<std::pair<std::int64_t, std::int32_t>>;  // a layer and an expert
using Blocks = std::vector<ps::MemoryView>;

struct Settings {
  std::string output, device = "best", only;
  bool quick = false;
  int turns = 7;
  std::int64_t layers = 8;
  std::size_t host_threads = 0;
};

class Bench {
 public:
  Bench(const Settings& settings, const ps::Device& device, bench::Results& results)
      : settings_(settings),
        device_(device),
        results_(results),
        store_(device, {.layers = settings.layers,
                        .experts = 128,
                        .hidden = settings.quick ? 256 : 2048,
                        .width = settings.quick ? 128 : 768}),
        stream_(device),
        pool_(device),
        link_(device, store_.block_bytes()) {
    const double seconds = ps::seconds_of([&] { bench::fill_experts(store_); });
    fmt::print("{} layers of 128 experts, {} in page-locked memory, filled in {}\n",
               settings.layers, ps::format_bytes(store_.bytes()), ps::format_seconds(seconds));
  }

  // An empty cache of a quarter of a pass.
  void cold(const std::string& name, std::int64_t tokens) {
    if (!chosen(name)) return;
    const ExpertPass pass = even_pass(tokens);
    ps::StreamedExperts experts(
        {.store = &store_, .device = device_, .device_bytes = bytes_for_quarter(), .records = 64});
    const auto run = [&] {
      pass.run(experts, stream_);
      experts.check();
    };
    const auto empty = [&] {
      experts.clear();
      device_.synchronize();
    };
    once(name, tokens, pass, run, empty,
         {{"slots", experts.slots()}, {"device_bytes", experts.device_bytes()}});
  }

  // The same experts, read by the kernels where they are: nothing is copied, and the host takes no
  // part.
  void in_place(const std::string& name, std::int64_t tokens) {
    if (!chosen(name)) return;
    const ExpertPass pass = even_pass(tokens);
    once(name, tokens, pass, [&] { pass.run_in_place(store_, stream_); }, [] {}, {});
  }

  // From compressed experts, with an empty cache of a quarter of a pass, in turn with plain ones.
  // The floor is the link with the compressed bytes, whose sizes are odd: in the best of several
  // ways to copy them, one of which copies many blocks and the padding between them at once.
  void compressed(const std::string& name, std::int64_t tokens) {
    if (!chosen(name)) return;
    const ps::CompressedExpertStore& store = compressed_store();
    const ExpertPass pass = even_pass(tokens);
    const ps::ExpertShape& shape = store_.shape();
    const std::size_t buffers = ps::StreamedExperts::least_bytes(shape, 0, 64, true) -
                                ps::StreamedExperts::least_bytes(shape);
    ps::StreamedExperts plain(
        {.store = &store_, .device = device_, .device_bytes = bytes_for_quarter()});
    ps::StreamedExperts experts(
        {.compressed = &store, .device = device_, .device_bytes = bytes_for_quarter() + buffers});
    const auto run = [&](ps::StreamedExperts& from) {
      pass.run(from, stream_);
      from.check();
    };
    const auto seconds_of = [&](ps::StreamedExperts& from) {
      from.clear();
      device_.synchronize();
      return ps::seconds_of([&] { run(from); });
    };
    const bool correct = pass.is_right([&] { run(experts); }, store_, stream_);
    const auto needed = pass.needed();
    const Blocks blocks = blocks_of(store, needed);
    std::size_t bytes = 0;
    for (const ps::MemoryView& block : blocks) bytes += block.bytes;
    ps::Floor floor;
    std::vector<double> seconds, plain_seconds;
    for (int turn = -1; turn < settings_.turns; ++turn) {
      const double of_plain = seconds_of(plain), own = seconds_of(experts);
      floor.time([&] { link_.one_by_one(blocks); });
      floor.time([&] { link_.by_two_streams(blocks); });
      floor.time([&] { link_.joined(blocks); });
      if (turn < 0) continue;
      plain_seconds.push_back(of_plain);
      seconds.push_back(own);
    }
    const double took = ps::median(seconds), plain_took = ps::median(plain_seconds);
    add(name, tokens, correct, floor.seconds(), took,
        {{"slots", experts.slots()},
         {"device_bytes", experts.device_bytes()},
         {"experts_needed", needed.size()},
         {"bytes_needed", bytes},
         {"share_of_bytes",
          static_cast<double>(bytes) / static_cast<double>(needed.size() * store_.block_bytes())},
         {"plain_us", microseconds(plain_took)},
         {"over_plain", took / plain_took},
         {"share_of_link", floor.seconds() / took},
         {"link_GBps", static_cast<double>(bytes) / floor.seconds() * 1e-9},
         {"best_us", microseconds(*std::min_element(seconds.begin(), seconds.end()))}});
  }

  // The CPU computes some experts while others are copied, with an empty cache, in turn with copies
  // alone. The floor is the time of all needed bytes at the rate at which the link and the CPU read
  // at the same time.
  void with_host(const std::string& name, std::int64_t tokens) {
    if (!chosen(name)) return;
    const ExpertPass pass = even_pass(tokens);
    ps::StreamedExperts plain(
        {.store = &store_, .device = device_, .device_bytes = bytes_for_quarter()});
    ps::StreamedExperts experts({.store = &store_,
                                 .device = device_,
                                 .device_bytes = bytes_for_quarter(),
                                 .host_experts = ps::HostExperts::balanced,
                                 .host_threads = settings_.host_threads});
    ps::StreamedExperts alone({.store = &store_,
                               .device = device_,
                               .device_bytes = bytes_for_quarter(),
                               .host_experts = ps::HostExperts::fixed,
                               .host_share = 1,
                               .host_threads = settings_.host_threads});
    const auto seconds_of = [&](ps::StreamedExperts& from) {
      from.clear();
      device_.synchronize();
      return ps::seconds_of([&] {
        pass.run(from, stream_);
        from.check();
      });
    };
    // The split follows from what earlier calls took.
    for (int pass_number = 0; pass_number < 4; ++pass_number) seconds_of(experts);
    const double error = pass.error([&] { seconds_of(experts); }, store_, stream_);
    const ps::ExpertStatistics before = experts.statistics();
    const auto needed = pass.needed();
    const std::size_t bytes = needed.size() * store_.block_bytes();
    Together best;
    std::vector<double> seconds, plain_seconds, alone_seconds;
    for (int turn = -1; turn < settings_.turns; ++turn) {
      const double of_plain = seconds_of(plain), own = seconds_of(experts);
      for (const std::size_t threads : {reading_threads(), ps::parallel_threads()}) {
        const Together both = link_and_reads(needed, threads);
        if (both.sum() > best.sum()) best = both;
      }
      const double of_cpu = seconds_of(alone);
      if (turn < 0) continue;
      plain_seconds.push_back(of_plain);
      alone_seconds.push_back(of_cpu);
      seconds.push_back(own);
    }
    const ps::ExpertStatistics after = experts.statistics();
    const double took = ps::median(seconds), plain_took = ps::median(plain_seconds);
    const double floor = static_cast<double>(bytes) / best.sum();
    add(name, tokens, error <= ps::host_experts_tolerance(ps::DType::bf16), floor, took,
        {{"experts_needed", needed.size()},
         {"bytes_needed", bytes},
         {"share_on_host", static_cast<double>(after.on_host - before.on_host) /
                               static_cast<double>(after.needed - before.needed)},
         {"share_of_link_and_reads", floor / took},
         {"link_GBps", best.link * 1e-9},
         {"reads_GBps", best.reads * 1e-9},
         {"reading_threads", best.threads},
         {"GBps", static_cast<double>(bytes) / took * 1e-9},
         {"plain_us", microseconds(plain_took)},
         {"over_plain", took / plain_took},
         {"cpu_alone_GBps", static_cast<double>(bytes) / ps::median(alone_seconds) * 1e-9},
         {"best_us", microseconds(*std::min_element(seconds.begin(), seconds.end()))}},
        error);
  }

  // A quarter of the experts is cached; routing by Zipf's law, in an order of its own per layer.
  void zipf(const std::string& name, std::int64_t tokens, ps::ExpertPrefetch prefetch) {
    if (!chosen(name)) return;
    std::mt19937_64 random = generator(4);
    const auto shares = ps::zipf_shares(settings_.layers, store_.shape().experts, random);
    const int steps = settings_.quick ? 20 : 200;
    std::vector<ExpertPass> passes;
    for (int step = 0; step < 2 * steps; ++step) {
      std::vector<Ids> ids;
      for (const auto& each : shares)
        ids.push_back(ps::draw_experts(tokens, choices, each, random));
      passes.emplace_back(store_.shape(), device_, pool_, tokens, std::move(ids), stream_);
    }
    ps::StreamedExperts experts({.store = &store_,
                                 .device = device_,
                                 .device_bytes = bytes_for_quarter(),
                                 .prefetch = prefetch});
    for (int step = 0; step < steps; ++step) {
      passes[static_cast<std::size_t>(step)].run(experts, stream_);
    }
    const auto first = [&] {
      passes.front().run(experts, stream_);
      experts.check();
    };
    const bool correct = passes.front().is_right(first, store_, stream_);
    experts.synchronize();
    const ps::ExpertStatistics before = experts.statistics();
    const double seconds = ps::seconds_of([&] {
      for (int step = steps; step < 2 * steps; ++step) {
        passes[static_cast<std::size_t>(step)].run(experts, stream_);
      }
    });
    const ps::ExpertStatistics after = experts.statistics();
    // The experts of all steps, in the order of the calls: the cache is as warm as ours.
    std::vector<std::int64_t> accesses;
    std::size_t timed = 0;
    for (std::size_t step = 0; step < passes.size(); ++step) {
      if (std::cmp_equal(step, steps)) timed = accesses.size();
      for (const auto& [layer, e] : passes[step].needed()) accesses.push_back(layer * 128 + e);
    }
    const auto all_uses = static_cast<double>(accesses.size() - timed);
    // Counted over the steps that are timed: no fixed set could do better.
    const double best = static_cast<double>(ps::best_fixed_set(std::span(accesses).subspan(timed),
                                                               experts.slots())) /
                        all_uses;
    const double optimum =
        static_cast<double>(ps::offline_optimum(accesses, experts.slots(), timed)) / all_uses;
    const std::uint64_t needed = after.needed - before.needed, hits = after.hits - before.hits;
    const std::uint64_t bytes = after.bytes - before.bytes;
    // The link alone, with as many experts as were copied in a step.
    const std::size_t each = std::max<std::size_t>(
        1, (bytes / store_.block_bytes() + static_cast<std::size_t>(steps) / 2) /
               static_cast<std::size_t>(steps));
    Experts some;
    for (std::size_t i = 0; i < std::max<std::size_t>(each, 64); ++i) {
      some.emplace_back(static_cast<std::int64_t>(i / 128) % settings_.layers,
                        static_cast<std::int32_t>(i % 128));
    }
    const Blocks copied = blocks_of(store_, some);
    ps::Floor floor;
    for (int turn = 0; turn < settings_.turns; ++turn)
      floor.time([&] { link_.one_by_one(copied); });
    const double per_byte =
        floor.seconds() / (static_cast<double>(some.size() * store_.block_bytes()));
    const double predicted = per_byte * static_cast<double>(bytes) / steps;
    const double rate = static_cast<double>(hits) / static_cast<double>(needed);
    add(name, tokens, correct, predicted, seconds / steps,
        {{"hit_rate", rate},
         {"best_fixed_set", best},
         {"hit_rate_share", rate / best},
         {"offline_optimum", optimum},
         {"hit_rate_of_optimum", rate / optimum},
         {"over_predicted", seconds / steps / predicted},
         {"late", after.late - before.late},
         {"prefetched", after.prefetched - before.prefetched},
         {"wasted", after.wasted - before.wasted},
         {"steps", steps},
         {"slots", experts.slots()}});
  }

 private:
  // Bytes per second.
  struct Together {
    double link = 0, reads = 0;
    std::size_t threads = 0;
    double sum() const { return link + reads; }
  };

  static std::size_t reading_threads() {
    return std::max<std::size_t>(ps::parallel_threads(), 5) - 4;
  }

  // The link copies these experts several times, while threads read all experts.
  Together link_and_reads(const Experts& experts, std::size_t threads) const {
    const auto all = static_cast<std::uint64_t>(settings_.layers * store_.shape().experts);
    const bench::HostReads reads(threads, [&](std::uint64_t number) {
      // In an order in which neighbours are far apart, unlike the copies.
      const auto each = static_cast<std::int64_t>(number * 911 % all);
      return store_.block(each / store_.shape().experts, each % store_.shape().experts);
    });
    const Blocks blocks = blocks_of(store_, experts);
    link_.one_by_one(blocks);  // until all threads read
    const std::uint64_t before = reads.bytes();
    constexpr int rounds = 3;
    std::uint64_t read = 0;
    const double seconds = ps::seconds_of([&] {
      for (int round = 0; round < rounds; ++round) link_.one_by_one(blocks);
      read = reads.bytes() - before;
    });
    const auto copied = static_cast<double>(experts.size() * store_.block_bytes() * rounds);
    return {
        .link = copied / seconds, .reads = static_cast<double>(read) / seconds, .threads = threads};
  }

  bool chosen(const std::string& name) const {
    return settings_.only.empty() || name.find(settings_.only) != std::string::npos;
  }

  // Every expert is as likely as the others.
  ExpertPass even_pass(std::int64_t tokens) const {
    std::mt19937_64 random = generator(3);
    const std::vector<double> even(128, 1);
    std::vector<Ids> ids;
    for (std::int64_t layer = 0; layer < settings_.layers; ++layer) {
      ids.push_back(ps::draw_experts(tokens, choices, even, random));
    }
    return {store_.shape(), device_, pool_, tokens, std::move(ids), stream_};
  }

  // Passes that begin with an empty cache, beside copies of the experts that they need.
  void once(const std::string& name, std::int64_t tokens, const ExpertPass& pass,
            const std::function<void()>& run, const std::function<void()>& empty, Json metrics) {
    const bool correct = pass.is_right(run, store_, stream_);
    const auto needed = pass.needed();
    const Blocks blocks = blocks_of(store_, needed);
    ps::Floor floor;
    std::vector<double> seconds;
    for (int turn = -1; turn < settings_.turns; ++turn) {
      empty();
      const double took = ps::seconds_of(run);
      if (turn >= 0) seconds.push_back(took);
      empty();
      floor.time([&] { link_.one_by_one(blocks); });
    }
    const std::size_t bytes = needed.size() * store_.block_bytes();
    metrics["experts_needed"] = needed.size();
    metrics["bytes_needed"] = bytes;
    metrics["share_of_link"] = floor.seconds() / ps::median(seconds);
    metrics["link_GBps"] = static_cast<double>(bytes) / floor.seconds() * 1e-9;
    metrics["best_us"] = microseconds(*std::min_element(seconds.begin(), seconds.end()));
    add(name, tokens, correct, floor.seconds(), ps::median(seconds), std::move(metrics));
  }

  std::size_t bytes_for_quarter() const {
    const auto slots = static_cast<std::size_t>(settings_.layers) * 128 / 4;
    const std::size_t block = store_.block_bytes();
    return slots * block + ps::StreamedExperts::least_bytes(store_.shape()) % block;
  }

  // The memory of experts in a store.
  template <class Store>
  static Blocks blocks_of(const Store& store, const Experts& experts) {
    Blocks blocks;
    for (const auto& [layer, expert] : experts) blocks.push_back(store.block(layer, expert));
    return blocks;
  }

  // The same weights, compressed when they are first needed.
  const ps::CompressedExpertStore& compressed_store() {
    if (compressed_) return *compressed_;
    const ps::ExpertShape& shape = store_.shape();
    compressed_ = std::make_unique<ps::CompressedExpertStore>(device_, shape);
    const double seconds = ps::seconds_of([&] {
      for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
        for (std::int64_t e = 0; e < shape.experts; ++e) {
          compressed_->set(layer, e, store_.block(layer, e));
        }
      }
    });
    fmt::print("compressed to {} in {}\n", ps::format_bytes(compressed_->bytes()),
               ps::format_seconds(seconds));
    return *compressed_;
  }

  // `error` is that of results that need not have the bits of moe().
  void add(const std::string& name, std::int64_t tokens, bool correct, double floor, double seconds,
           Json metrics, double error = 0) {
    const ps::ExpertShape& shape = store_.shape();
    fmt::print("{:<24} {:>10}, {:.3f} x the floor of {:>10}   {}\n", name,
               ps::format_seconds(seconds), seconds / floor, ps::format_seconds(floor),
               correct ? metrics.dump() : "WRONG RESULT");
    if (!correct) throw std::runtime_error(name + ": the result differs from that of moe()");
    results_.add({{"case", name},
                  {"params",
                   {{"layers", shape.layers},
                    {"experts", shape.experts},
                    {"hidden", shape.hidden},
                    {"width", shape.width},
                    {"choices", choices},
                    {"tokens", tokens}}},
                  {"correct", true},
                  {"max_error", error},
                  {"tolerance", error > 0 ? ps::host_experts_tolerance(ps::DType::bf16) : 0},
                  {"floor_us", microseconds(floor)},
                  {"ours", {{"call_us", microseconds(seconds)}}},
                  {"peer", Json::object()},
                  {"metrics", std::move(metrics)}});
  }

  const Settings& settings_;
  ps::Device device_;
  bench::Results& results_;
  ps::ExpertStore store_;
  std::unique_ptr<ps::CompressedExpertStore> compressed_;
  ps::Stream stream_;
  ps::Pool pool_;
  bench::LinkCopies link_;
};

void run(const Settings& settings) {
  const ps::Device device = ps::Device::parse(settings.device);
  if (device.kind() != ps::DeviceKind::cuda) {
    throw ps::Unsupported("experts are streamed to a GPU; " + ps::Device::why_no_gpu());
  }
  ps::LimitsOptions limit_options = settings.quick ? ps::quick_limits() : ps::LimitsOptions{};
  limit_options.disk = false;
  const ps::Limits limits = ps::measure_limits(device, limit_options);
  bench::Results results("expert_streaming", device, limits);
  Bench bench(settings, device, results);
  bench.cold("prefill 1x4096", 4096);
  bench.cold("prefill 4x4096", 16384);
  bench.cold("decode B1", 1);
  bench.cold("decode B8", 8);
  bench.cold("decode B64", 64);
  bench.compressed("prefill 1x4096, compressed", 4096);
  bench.compressed("prefill 4x4096, compressed", 16384);
  bench.compressed("decode B1, compressed", 1);
  bench.with_host("decode B1, with the CPU", 1);
  bench.with_host("decode B8, with the CPU", 8);
  bench.in_place("decode B1, read by kernels", 1);
  bench.in_place("decode B8, read by kernels", 8);
  bench.zipf("zipf B1", 1, ps::ExpertPrefetch::none);
  bench.zipf("zipf B8", 8, ps::ExpertPrefetch::none);
  bench.zipf("zipf B1, previous", 1, ps::ExpertPrefetch::previous);
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Expert layers whose weights are streamed from host memory");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--device", settings.device, "cuda, cuda:N or best");
  app.add_option("--only", settings.only, "Cases whose names contain this");
  app.add_option("--turns", settings.turns, "Timed passes per case")->check(CLI::PositiveNumber);
  app.add_option("--layers", settings.layers, "Layers")->check(CLI::Range(1, 64));
  app.add_option("--host-threads", settings.host_threads,
                 "Threads that compute experts on the CPU; 0: as many as StreamedExperts chooses");
  app.add_flag("--quick", settings.quick, "Small experts, for a first look; not a measurement");
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_expert_streaming", [&] { run(settings); });
}
