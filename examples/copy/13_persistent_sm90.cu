// Many small batches. A launch for each pays for starting and draining the GPU every time, and for
// enqueuing, which takes microseconds that a batch of 256 KiB does not have. A kernel may be
// started while the one before it still drains (programmatic dependent launch), which saves part of
// that. One launch for all saves all of it: its blocks stay and walk through the batches, and the
// ring never runs empty between two of them.
#include <string>

#include "copy/support/roles.cuh"
#include "copy/support/rung.h"
#include "penstock/base/units.h"
#include "penstock/kit/scheduler.h"

namespace {

using namespace ladder::copy;

constexpr unsigned KiB = 1024;
using Plain = RolesConfig<5>;
constexpr RolesShape shape{.tile_bytes = 8 * KiB, .blocks_per_multiprocessor = 4};

// Batches of equal size, each in tiles of its own. Here they lie behind each other; a table of
// pointers would do as well.
struct Batches {
  const unsigned char* in;
  unsigned char* out;
  std::size_t bytes;
  unsigned batch_bytes, tile_bytes;
  ps::kit::Divisor tiles_in_batch;
  unsigned count;

  Batches(const Work& work, unsigned batch, unsigned tile)
      : in(reinterpret_cast<const unsigned char*>(work.in)),
        out(reinterpret_cast<unsigned char*>(work.out)),
        bytes(work.count * sizeof(float)),
        batch_bytes(batch),
        tile_bytes(tile),
        tiles_in_batch((batch + tile - 1) / tile),
        count(static_cast<unsigned>(bytes / batch) * tiles_in_batch.value() +
              (static_cast<unsigned>(bytes % batch) + tile - 1) / tile) {}

  __device__ std::size_t at(unsigned tile, unsigned& size) const {
    const unsigned batch = tiles_in_batch.divide(tile);
    const unsigned inside = (tile - batch * tiles_in_batch.value()) * tile_bytes;
    const std::size_t start = std::size_t{batch} * batch_bytes, left = bytes - start;
    const unsigned end = left < batch_bytes ? static_cast<unsigned>(left) : batch_bytes;
    size = end - inside < tile_bytes ? end - inside : tile_bytes;
    return start + inside;
  }
  __device__ unsigned bytes_of(unsigned tile) const {
    unsigned size;
    at(tile, size);
    return size;
  }
  __device__ Piece piece(unsigned tile) const {
    unsigned size;
    const std::size_t offset = at(tile, size);
    return {in + offset, out + offset, size};
  }
};

enum class Launches { each, each_early, one };

template <class Config>
void launch_batches(const Work& work, unsigned batch_bytes, bool early, cudaStream_t stream,
                    const ps::kit::TraceBuffer<Config::traced>& buffer) {
  launch_roles<Config>(Batches(work, batch_bytes, shape.tile_bytes), shape, {nullptr}, work.rounds,
                       stream, buffer, early);
}

template <class Config>
Kernel make(unsigned batch_bytes, Launches launches,
            ps::kit::TraceBuffer<Config::traced> buffer = {}) {
  const char* const how = launches == Launches::each         ? "a launch per batch"
                          : launches == Launches::each_early ? "an early launch per batch"
                                                             : "one launch";
  return {.label = "batches of " + ps::format_bytes(batch_bytes) + ", " + how,
          .launch =
              [=](const Work& work, cudaStream_t stream) {
                launch_aligned(work, 4, stream, [&](const Work& aligned) {
                  if (launches == Launches::one) {
                    launch_batches<Config>(aligned, batch_bytes, false, stream, buffer);
                    return;
                  }
                  const std::size_t batch = batch_bytes / sizeof(float);
                  for (std::size_t at = 0; at < aligned.count; at += batch) {
                    const std::size_t left = aligned.count - at;
                    launch_batches<Config>({.in = aligned.in + at,
                                            .out = aligned.out + at,
                                            .count = left < batch ? left : batch,
                                            .rounds = aligned.rounds},
                                           batch_bytes, launches == Launches::each_early && at > 0,
                                           stream, buffer);
                  }
                });
              },
          .use =
              [] {
                return ladder::kernel_use(roles_kernel<Config, Batches>, Config::Team::threads,
                                          std::size_t{shape.tile_bytes} * Config::depth);
              },
          .hopper = true,
          .at = {Intensity::copy_bound, Intensity::balanced}};
}

std::vector<Kernel> kernels() {
  std::vector<Kernel> all;
  for (const unsigned batch : {256 * KiB, 1024 * KiB, 8192 * KiB}) {
    for (const Launches launches : {Launches::each, Launches::each_early, Launches::one}) {
      all.push_back(make<Plain>(batch, launches));
    }
  }
  return all;
}

std::vector<Traced> traced() {
  return {{.name = "persistent", .roles = role_names(), .kernel = [](const auto& buffer) {
             using Seen = RolesConfig<Plain::depth, Plain::compute_warps, Side::both, true>;
             return make<Seen>(256 * KiB, Launches::one, buffer);
           }}};
}

const ladder::Instructions machine{.holds = {"UBLKCP.S.G", "UBLKCP.G.S", "ACQBULK"},
                                   .lacks = {"LDG", "STG.128"}};
PENSTOCK_COPY_RUNG("persistent",
                   "Persistent blocks process many small batches with a single launch.", machine,
                   kernels, traced);

}  // namespace
