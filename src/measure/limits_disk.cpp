#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "host/random_fill.h"
#include "measure/limits_parts.h"
#include "measure/scratch_file.h"
#include "measure/start_together.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"

namespace ps::detail {
namespace {

constexpr std::size_t block = 4 * MiB;
constexpr int in_flight = 8;

// Walks round the file, so that every repetition meets another part of it.
class DiskTest {
 public:
  DiskTest(ScratchFile& file, std::size_t file_bytes, std::stop_token stop)
      : file_(file),
        blocks_(file_bytes / block),
        stop_(std::move(stop)),
        buffers_(Device::cpu(), in_flight * block) {
    fill_random({buffers_.view().data, buffers_.bytes()}, 1);
  }

  double write(std::size_t bytes) {
    const double moved = each_block(
        bytes, [this](std::byte* data, std::size_t offset) { file_.write(data, block, offset); });
    const double flushed = run_threads_together(1, [this](int) { file_.flush(); });
    written_ = std::min(blocks_, std::max(written_, next_));
    return moved + flushed;
  }

  double read(std::size_t bytes) {
    if (!file_.direct()) file_.forget();
    return each_block(
        bytes, [this](std::byte* data, std::size_t offset) { file_.read(data, block, offset); });
  }

  // From here on, walks only over what was written.
  void rewind() {
    blocks_ = written_;
    next_ = 0;
  }

 private:
  template <class Move>
  double each_block(std::size_t bytes, const Move& move) {
    const std::size_t end = next_ + bytes / block;
    std::atomic<std::size_t> at = next_;
    std::atomic<bool> failed = false;
    const double seconds = run_threads_together(in_flight, [&](int thread) {
      std::byte* data = buffers_.view().data + static_cast<std::size_t>(thread) * block;
      for (std::size_t i = at++; i < end && !failed; i = at++) {
        if (stop_.stop_requested()) throw Cancelled();
        try {
          move(data, i % blocks_ * block);
        } catch (...) {
          failed = true;
          throw;
        }
      }
    });
    next_ = end;
    return seconds;
  }

  ScratchFile& file_;
  std::size_t blocks_;
  std::size_t next_ = 0;
  std::size_t written_ = 0;
  std::stop_token stop_;
  PinnedBuffer buffers_;  // page-aligned, as O_DIRECT wants it
};

// Some file systems take the flag and refuse the transfer.
void settle_direct(ScratchFile& file) {
  const PinnedBuffer page(Device::cpu(), block);
  try {
    fill_random({page.view().data, block}, 1);
    file.write(page.view().data, block, 0);
  } catch (const SystemError& error) {
    if (!file.direct() || error.code().value() != EINVAL) throw;
    file.use_page_cache();
  }
}

std::string note_of(const ScratchFile& file) {
  if (file.in_memory()) return "in memory (tmpfs), not on a disk";
  if (!file.direct()) return "through the page cache: the file system refuses O_DIRECT";
  return {};
}

}  // namespace

void measure_disk(const LimitsOptions& options, const CeilingTick& tick, Rates& rates) {
  tick(Ceiling::disk_write, 0);
  ScratchFile file(options.directory);
  settle_direct(file);

  // Leaves half of a nearly full disk to others; a full one refuses the smallest test.
  const std::size_t smallest = in_flight * block;
  std::size_t file_bytes = std::min(options.disk_bytes, file.free_bytes() / 2);
  file_bytes = std::max(file_bytes - file_bytes % block, smallest);

  DiskTest test(file, file_bytes, options.stop);
  const SamplingPlan plan{.repetitions = options.repetitions,
                          .seconds = 2 * options.seconds,
                          .least_bytes = smallest,
                          .most_bytes = std::max(smallest, file_bytes / 4 / block * block),
                          .granule = block};
  const auto run = [&](Ceiling ceiling, const Move& move) {
    Rate rate = sample(plan, 1, move, [&](double fraction) { tick(ceiling, fraction); });
    rate.note = note_of(file);
    rates[ceiling] = rate;
  };
  run(Ceiling::disk_write, [&](std::size_t bytes) { return test.write(bytes); });
  test.rewind();
  run(Ceiling::disk_read, [&](std::size_t bytes) { return test.read(bytes); });
}

}  // namespace ps::detail
