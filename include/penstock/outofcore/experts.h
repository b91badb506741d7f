// Expert layers whose weights stay in host memory or on a disk. Experts are copied to the GPU when
// tokens need them, and the most useful ones stay there in a cache.
//
//   ps::ExpertStore store(gpu, {.layers = 48, .experts = 128, .hidden = 2048, .width = 768});
//   ...                                   // fill store.gate_up(layer, expert), store.down(...)
//   ps::StreamedExperts experts({.store = &store, .device = gpu, .device_bytes = 20 * ps::GiB});
//   experts.forward(layer, {.x = x, .ids = ids, .weights = weights, .out = out, .pool = &pool},
//                   stream);
//
// A call computes the experts in groups: first those that are in the cache, then the others as
// they arrive, so that copies overlap with products. The result has the bits of moe() with all
// weights on the device.
//
// With HostExperts, the CPU computes some experts where they lie, in calls of few tokens, while
// others are copied. Results then differ from those of moe() by rounding, by no more than
// host_experts_tolerance() says: the CPU adds the products up in f32 too, but in another order, and
// rounds the same intermediate results to the type of x.
//
// With a DiskExpertStore, experts that its cache in host memory does not have are read into it, and
// copied from there. With a CompressedExpertStore, fewer bytes are copied, and the GPU decompresses
// one expert while the next ones are copied.
//
// On the CPU device, moe() works on the memory of the store, and nothing is copied; with a
// DiskExpertStore, experts are computed from the slots of its cache. With a CompressedExpertStore,
// the CPU works as a GPU does: experts are decompressed into slots in ordinary memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "penstock/base/dtype.h"
#include "penstock/base/view.h"
#include "penstock/host/cache_policy.h"
#include "penstock/host/device.h"
#include "penstock/host/stream.h"
#include "penstock/ops/moe.h"
#include "penstock/outofcore/compressed_expert_store.h"
#include "penstock/outofcore/disk_expert_store.h"
#include "penstock/outofcore/expert_store.h"

namespace ps {

namespace detail {
class ExpertFeeder;
struct ExpertHooks;
}  // namespace detail

// Which experts are copied before a call asks for them.
enum class ExpertPrefetch : std::uint8_t {
  none,      // those of prefetch() only
  previous,  // also those that the previous call of the next layer used
};

// Which experts the CPU computes in host memory instead of copying them to the GPU. Calls of more
// than 64 tokens or 512 ids, those of so many that nearly all experts are needed, and those with
// `batch_invariant` copy all experts.
enum class HostExperts : std::uint8_t {
  none,
  // So many of those that are not on the device that the CPU and the copies probably end at the
  // same time, by measured rates. Experts of more than 8 rows are copied, and so are those that the
  // CPU computed three times since they were last on the device. Which ones are chosen depends on
  // time, and with it the rounding of results.
  balanced,
  // A share of the experts that have rows, whether they are on the device or not: those with the
  // fewest rows, and of several with the same number of rows those with the highest numbers. The
  // choice depends on the ids of the call alone, so results are repeatable on the same machine.
  fixed,
};

// With HostExperts other than none: how far an element of a call's result may be from that of
// moe(), as a share of the largest element. 1/64 for bf16, 1/512 for f16, 2^-17 for f32. Throws
// InvalidArgument for other types.
double host_experts_tolerance(DType dtype);

struct StreamedExpertsOptions {
  // Where the experts are: set one of them. It lives longer than the object.
  const ExpertStore* store = nullptr;
  const DiskExpertStore* disk = nullptr;
  const CompressedExpertStore* compressed = nullptr;  // with all experts set
  Device device = Device::best();
  // Device memory to use, for slots of one expert each and less than 1 MiB of tables; with a
  // compressed store also for four buffers of about one expert each. At least
  // StreamedExperts::least_bytes(). Not used on the CPU device, unless the store is compressed.
  std::size_t device_bytes = 0;
  // What the cache evicts; null: frequency_policy(). The key of an expert is layer * E + expert.
  std::unique_ptr<CachePolicy> policy{};
  // Experts that are copied at the first opportunity and never evicted, by layer and expert.
  std::vector<std::pair<std::int64_t, std::int64_t>> pinned{};
  ExpertPrefetch prefetch = ExpertPrefetch::none;
  // Other than none only with `store`, on a GPU. Keeps `host_threads` of the CPU's cores busy while
  // a call is in flight and for about a millisecond longer. Takes page-locked memory for 4 calls:
  // each for 64 rows of the hidden size, and 544 of the hidden size and the width.
  HostExperts host_experts = HostExperts::none;
  // Of `fixed`: the share of the experts that the CPU computes, above 0 and at most 1.
  double host_share = 0;
  // Of HostExperts other than none: the threads that compute, at most 256. 0: all but four of the
  // CPU's cores, at least 1 and at most 24.
  std::size_t host_threads = 0;
  // Calls that may be in flight; forward() blocks when there are more. At least 1.
  std::size_t calls_in_flight = 64;
  // The last calls that records() keeps.
  std::size_t records = 0;
};

// Counts of experts since the object was made, and bytes that were copied for them. On the CPU
// device with a DiskExpertStore, "on the device" is its cache, and "copied" is read. On the CPU
// device with an ExpertStore, only calls are counted.
struct ExpertStatistics {
  std::uint64_t calls = 0;
  std::uint64_t needed = 0;   // the sum of the next four
  std::uint64_t hits = 0;     // were on the device
  std::uint64_t late = 0;     // were being copied already
  std::uint64_t misses = 0;   // were copied for the call
  std::uint64_t on_host = 0;  // were computed by the CPU, because of HostExperts
  std::uint64_t prefetched = 0;
  std::uint64_t wasted = 0;  // prefetched, and evicted before any call used them
  std::uint64_t evicted = 0;
  // Of all copies, as they passed the link: compressed, if the store is. On the CPU device with a
  // DiskExpertStore, of reads.
  std::uint64_t bytes = 0;
  std::uint64_t failed_calls = 0;
};

// Record of one call of forward(), for diagnosis.
struct ExpertCallRecord {
  std::int64_t layer = 0, tokens = 0;
  std::uint32_t needed = 0, hits = 0, late = 0, misses = 0, on_host = 0;
  std::uint32_t groups = 0;  // that had experts
  // CLOCK_MONOTONIC: when the call was enqueued, when the host knew its experts, and when the last
  // copy for it had been enqueued.
  std::int64_t enqueued_ns = 0, routed_ns = 0, answered_ns = 0;
};

// Thrown by calls after close().
class ExpertsClosed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thread-safe. Has a thread that answers calls; it waits without taking CPU time while no call is
// in flight, and polls while one is. With HostExperts, it has threads that compute, too.
class StreamedExperts {
 public:
  // Throws InvalidArgument naming the option, OutOfMemory, Unsupported.
  explicit StreamedExperts(StreamedExpertsOptions options);
  // Waits for the calls that are in flight.
  ~StreamedExperts();
  StreamedExperts(StreamedExperts&&) noexcept;
  StreamedExperts& operator=(StreamedExperts&&) noexcept;

  // The minimum of device_bytes for experts of this shape, `pinned` of them pinned: with less,
  // forward() could not overlap copies and products. `compressed`: from a compressed store.
  static std::size_t least_bytes(const ExpertShape& shape, std::size_t pinned = 0,
                                 std::size_t calls_in_flight = 64, bool compressed = false);

  // Computes the expert layer `layer`. `call` is as for moe(), but has no gate_up, down, slots,
  // biases and layout, which come from the store; x has the dtype of the store.
  //
  // Enqueues on `stream`. Returns once the copies of the experts are enqueued: a call of few tokens
  // blocks until earlier work of `stream` has computed `ids`, but not until experts are copied or
  // computed. With a DiskExpertStore on a GPU, it also blocks until the experts that are not in the
  // store's cache have been read; on the CPU device it never waits for either. Also blocks if
  // calls_in_flight calls are not done, and while another thread's call blocks. The experts are
  // computed on `stream` alone; they are copied, and decompressed, on streams of the object's own.
  // Calls are answered in the order in which they were made, so a call must not depend on one that
  // is made later. Cannot be captured into a graph.
  //
  // While experts are in flight, a flag holds `stream` on the device, and CUDA does not know
  // what raises it. If `stream` shares a hardware queue with a stream of the object, which copies
  // or decompresses, both wait forever. Each stream has its own queue while the process uses no
  // more streams than CUDA_DEVICE_MAX_CONNECTIONS (8 by default, 32 at most).
  //
  // CUDA loads a kernel when it is first launched, and may wait for all work on the device to do
  // so. A program whose other threads launch kernels meanwhile, also through another object, should
  // launch each of them once before, or set CUDA_MODULE_LOADING=EAGER.
  //
  // Throws as moe(), InvalidArgument naming `layer`, Unsupported for a capture, ExpertsClosed, and
  // the first error of an earlier call, once. If copying an expert fails, the call still ends, its
  // result lacks experts, and check(), synchronize() or the next call throws the error. The same
  // holds for an expert that cannot be read from a disk, or that the CPU fails to compute.
  void forward(std::int64_t layer, const MoeOptions& call, const Stream& stream);

  // Hints that a later call of `layer` will need these experts. They are copied while no
  // call waits for experts, in this order. Returns at once. Throws InvalidArgument. An expert that
  // cannot be read from a disk then is no error: DiskExpertStore::statistics() counts it among
  // failed_fills, and the call that needs it reads again. The same holds for other
  // prefetches.
  void prefetch(std::int64_t layer, std::span<const std::int32_t> experts);
  // The same for ids, (T, K) of i32 or i64 and contiguous, that work on `stream` computes: a
  // prediction of the next router, for example. Ids outside [0, E) are ignored. Enqueues a small
  // kernel. Cannot be captured. May be made before the call of the layer that comes first: the
  // experts are copied when the next call has been answered, or, if none comes, after about 1 ms.
  void prefetch(std::int64_t layer, const TensorView& ids, const Stream& stream);

  // Empties the cache on the device, pinned experts included, and forgets what was to be
  // prefetched. Calls made before are not affected. Blocks until they are answered. The cache of a
  // DiskExpertStore stays as it is.
  void clear();

  // Throws the first error of a call since the last time, if there was one. Does not wait.
  void check();
  // Blocks until all calls made so far are done, then check().
  void synchronize();
  // Ends calls that are in flight without the experts that have not been copied yet, and waits for
  // them. Later calls throw ExpertsClosed. Does nothing the second time.
  void close();

  ExpertStatistics statistics() const;
  std::vector<ExpertCallRecord> records() const;
  // Experts that fit on the device; 0 on the CPU device, unless the store is compressed.
  std::size_t slots() const;
  std::size_t device_bytes() const;

  // For tests: with other steps than those of moe().
  StreamedExperts(StreamedExpertsOptions options, detail::ExpertHooks hooks);

 private:
  std::unique_ptr<detail::ExpertFeeder> feeder_;
};

}  // namespace ps
