#include "outofcore/host_copy.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "host/copy_past_caches.h"
#include "outofcore/joined_transfers.h"
#include "penstock/base/checked.h"
#include "penstock/base/units.h"
#include "penstock/host/parallel.h"

namespace ps::detail {
namespace {

// A piece is cut into shares, which wait in one queue for a free core: no core waits for another,
// and the shares of one piece end together, in the order in which the device takes pieces.
constexpr std::size_t share = 1 * MiB;

void run(const HostCopy& copy) {
  if (copy.to_slot) {
    std::memcpy(copy.to, copy.from, copy.bytes);  // the upload finds it in the cache
  } else {
    copy_past_caches(copy.to, copy.from, copy.bytes);
  }
}

}  // namespace

void copy_on_cores(const std::vector<HostCopy>& copies, const Completion& done) {
  std::size_t shares = 0;
  for (const HostCopy& each : copies) shares += ceil_div(each.bytes, share);
  const JoinedTransfers all(shares, done);
  for (const HostCopy& each : copies) {
    for (std::size_t at = 0; at < each.bytes; at += share) {
      const HostCopy part{each.to + at, each.from + at, std::min(share, each.bytes - at),
                          each.to_slot};
      const TransferDone over = all.one();
      try {
        parallel_post([part, over] {
          run(part);
          over(nullptr);
        });
      } catch (...) {  // the others are under way and must end first
        over(std::current_exception());
      }
    }
  }
}

}  // namespace ps::detail
