#include "penstock/measure/engines.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "measure/passes.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/measure/timing.h"

namespace ps {
namespace {

using detail::Passes;

constexpr std::size_t cached_slots = 4;

// Powers of two from a 64th of the largest up: enough small ones to see the overhead.
std::vector<std::size_t> candidates(std::size_t largest) {
  std::vector<std::size_t> sizes;
  for (std::size_t size = largest; size >= 256 * KiB && sizes.size() < 7; size /= 2) {
    sizes.push_back(size / sizeof(float) * sizeof(float));
  }
  if (sizes.empty()) sizes.push_back(largest);
  return sizes;
}

Alone measure_alone(std::size_t bytes, std::size_t largest, int repeats,
                    const std::function<void(const Cut&)>& pass) {
  Alone alone;
  std::vector<CostSample> samples;
  for (const std::size_t chunk : candidates(largest)) {
    std::vector<double> seconds;
    pass({chunk});  // to warm up
    for (int i = 0; i < repeats; ++i) {
      seconds.push_back(seconds_of([&] { pass({chunk}); }));
      alone.add(seconds.back(), {chunk});
    }
    const double typical = median(std::move(seconds));
    samples.push_back({chunk, typical / static_cast<double>(ceil_div(bytes, chunk))});
    if (alone.typical == 0 || typical < alone.typical) alone.typical = typical;
    // Through a few slots, which a cache may hold: the floor must not be beaten by such a cache.
    if (chunk * cached_slots > bytes) continue;
    const Cut cached{.chunk = chunk, .slots = cached_slots};
    for (int i = 0; i < 2; ++i) alone.add(seconds_of([&] { pass(cached); }), cached);
  }
  try {
    alone.cost = fit_cost(samples);
  } catch (const InvalidArgument&) {
    // One size only, or a machine so busy that large pieces seem no slower than small ones.
    alone.cost = {.bytes_per_second = static_cast<double>(bytes) / alone.typical};
  }
  return alone;
}

// The rounds for which compute takes `ratio` times as long as the upload beside it: each slows the
// other a little, and balance is wanted where they overlap.
int balanced_rounds(const Passes& passes, std::size_t chunk, double ratio, int repeats) {
  passes.upload({chunk});
  int rounds = 1;
  for (int step = 0; step < 12; ++step) {
    std::vector<double> scales;
    for (int turn = 0; turn < repeats; ++turn) {
      const detail::UploadAndCompute seconds = passes.side_by_side(chunk, rounds);
      scales.push_back(ratio * seconds.upload / seconds.compute);
    }
    // Small counts are bound by memory and say little: go up by at most 16 at a time.
    const double scale = std::clamp(median(scales), 1.0 / 16, 16.0);
    const int next = std::max(1, static_cast<int>(std::lround(rounds * scale)));
    if (std::abs(next - rounds) <= rounds / 200) return next;
    rounds = next;
  }
  return rounds;
}

std::size_t largest_of(const EnginesOptions& options, std::size_t bytes) {
  if (options.largest == 0) return std::max(bytes / 2, sizeof(float));
  return std::min(options.largest, bytes);
}

bool contains(std::span<const Engine> engines, Engine engine) {
  return std::ranges::find(engines, engine) != engines.end();
}

}  // namespace

void Alone::add(double took, const Cut& at) {
  if (floor.passes() == 0 || took < floor.seconds()) cut = at;
  floor.add(took);
}

void Alone::retime(double again) {
  cost.bytes_per_second *= typical / again;
  typical = again;
}

bool uses_both_ways(std::span<const Engine> engines) {
  return contains(engines, Engine::upload) && contains(engines, Engine::download);
}

const Alone& Engines::alone(Engine engine) const {
  switch (engine) {
    case Engine::upload:
      return upload;
    case Engine::download:
      return download;
    case Engine::device_copy:
      return device_copy;
    case Engine::compute:
      return compute;
    case Engine::disk:
    case Engine::host:
      break;
  }
  throw InvalidArgument("engine", "upload, download, device copy or compute",
                        std::string(name(engine)));
}

Alone& Engines::alone(Engine engine) {
  return const_cast<Alone&>(std::as_const(*this).alone(engine));
}

double Engines::floor_seconds(std::span<const Engine> engines) const {
  double floor = 0, sum = 0;
  for (const Engine engine : engines) {
    floor = std::max(floor, alone(engine).seconds());
    sum += alone(engine).seconds();
  }
  if (uses_both_ways(engines)) floor = std::max(floor, both_ways.seconds());
  if (cores > 0) floor = std::max(floor, sum / cores);
  return floor;
}

std::vector<EngineCost> Engines::costs(std::span<const Engine> engines) const {
  std::vector<EngineCost> result;
  for (const Engine engine : engines) result.push_back(alone(engine).cost);
  if (uses_both_ways(engines)) {
    const auto at = std::ranges::find(engines, Engine::upload) - engines.begin();
    EngineCost both = both_ways.cost;
    // Both directions together cannot start a chunk sooner than either alone; a noisy fit may say
    // so.
    both.overhead_seconds = std::max(
        {both.overhead_seconds, upload.cost.overhead_seconds, download.cost.overhead_seconds});
    result[static_cast<std::size_t>(at)] = both;
  }
  return result;
}

Engines measure_engines(const Yardstick& yardstick, const EnginesOptions& options) {
  Engines engines;
  measure_link(yardstick, options, engines);
  measure_compute(yardstick, options, engines);
  return engines;
}

void measure_compute(const Yardstick& yardstick, const EnginesOptions& options, Engines& engines) {
  if (!(options.compute_ratio > 0) || !(options.compute_ratio <= 1000)) {
    detail::throw_invalid("compute_ratio", "above 0 and at most 1000",
                          std::to_string(options.compute_ratio));
  }
  if (options.rounds < 0) {
    detail::throw_invalid("rounds", "at least 0", std::to_string(options.rounds));
  }
  const std::size_t bytes = yardstick.bytes(), largest = largest_of(options, bytes);
  const Passes passes(yardstick, largest);
  engines.rounds = options.rounds;
  if (options.rounds == 0) {
    // Balanced at the chunk that the link will be cut into: a kernel's start and end weigh more
    // there than in one large piece.
    const std::array link{engines.upload.cost, engines.download.cost, engines.upload.cost};
    const std::size_t chunk =
        choose_chunk(bytes, link,
                     {.granularity = std::min(64 * KiB, largest), .maximum_bytes = largest})
            .chunk_bytes;
    engines.rounds = balanced_rounds(passes, chunk, options.compute_ratio, options.repeats);
  }
  engines.compute = measure_alone(bytes, largest, options.repeats,
                                  [&](const Cut& cut) { passes.compute(cut, engines.rounds); });
}

void measure_link(const Yardstick& yardstick, const EnginesOptions& options, Engines& engines) {
  const std::size_t bytes = yardstick.bytes(), largest = largest_of(options, bytes);
  const Passes passes(yardstick, largest);
  const auto measure = [&](const std::function<void(const Cut&)>& pass) {
    return measure_alone(bytes, largest, options.repeats, pass);
  };
  // What is touched for the first time is slow, and so is a link that wakes from rest.
  double warm = 0;
  while (warm < options.warm_up_seconds) warm += seconds_of([&] { passes.both_ways({largest}); });
  engines.upload = measure([&](const Cut& cut) { passes.upload(cut); });
  engines.download = measure([&](const Cut& cut) { passes.download(cut); });
  engines.both_ways = measure([&](const Cut& cut) { passes.both_ways(cut); });
  engines.device_copy = measure([&](const Cut& cut) { passes.device_copy(cut); });
  const Device& device = yardstick.device();
  engines.cores = device.kind() == DeviceKind::cpu ? device.capabilities().multiprocessors : 0;
}

void add_passes(const Yardstick& yardstick, std::span<const Engine> of, Engines& engines) {
  std::size_t largest = engines.both_ways.cut.chunk;
  for (const Engine engine : of) largest = std::max(largest, engines.alone(engine).cut.chunk);
  const Passes passes(yardstick, largest);
  const auto add = [](Alone& alone, const std::function<void()>& pass) {
    alone.add(seconds_of(pass), alone.cut);
  };
  for (const Engine engine : of) {
    Alone& alone = engines.alone(engine);
    add(alone, [&] { passes.run(engine, alone.cut, engines.rounds); });
  }
  if (uses_both_ways(of)) {
    add(engines.both_ways, [&] { passes.both_ways(engines.both_ways.cut); });
  }
}

}  // namespace ps
