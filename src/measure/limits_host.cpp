#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/cache_size.h"
#include "host/random_fill.h"
#include "measure/limits_parts.h"
#include "measure/start_together.h"
#include "penstock/host/buffer.h"

namespace ps::detail {
namespace {

constexpr std::size_t page = 4 * KiB;
constexpr int most_threads = 64;  // more add nothing to what memory controllers deliver

}  // namespace

void measure_host(const LimitsOptions& options, const CeilingTick& tick, Rates& rates) {
  tick(Ceiling::host_copy, 0);
  const int threads =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, most_threads);
  // Source and destination together are several times the cache, which is not to be measured.
  const std::size_t wanted =
      std::max(options.host_bytes, std::min(2 * last_level_cache(), 4 * options.host_bytes));
  const std::size_t bytes = affordable(wanted, available_host_bytes());
  const std::size_t share = bytes / static_cast<std::size_t>(threads) / page * page;
  const PinnedBuffer source(Device::cpu(), bytes);
  const PinnedBuffer target(Device::cpu(), bytes);
  const auto slice = [share](const PinnedBuffer& buffer, int thread) {
    return buffer.view().data + static_cast<std::size_t>(thread) * share;
  };

  // Each thread touches its own share first, so that it lies in memory near to it.
  run_threads_together(threads, [&](int thread) {
    fill_random({slice(source, thread), share}, static_cast<std::uint64_t>(thread));
    std::memset(slice(target, thread), 0, share);
  });

  const std::size_t round = share * static_cast<std::size_t>(threads);
  const SamplingPlan plan{.repetitions = options.repetitions,
                          .seconds = options.seconds,
                          .least_bytes = round,
                          .most_bytes = 64 * round,
                          .granule = round};
  const auto copy_all = [&](std::size_t total) {
    const std::size_t rounds = total / round;
    return run_threads_together(threads, [&](int thread) {
      for (std::size_t i = 0; i < rounds; ++i) {
        std::memcpy(slice(target, thread), slice(source, thread), share);
      }
    });
  };
  Rate rate = sample(plan, 2, copy_all, [&](double done) { tick(Ceiling::host_copy, done); });
  rate.note = fmt::format("memcpy on {} thread{}", threads, threads == 1 ? "" : "s");
  rates[Ceiling::host_copy] = rate;
}

}  // namespace ps::detail
