#include "support/bare_read.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#if PENSTOCK_WITH_URING
#include <liburing.h>
#endif

namespace bench {

void read_by_threads(const BareRead& work) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < work.in_flight; ++t) {
      threads.emplace_back([&, t] {
        std::byte* const to = work.memory + t * work.block;
        for (std::size_t at = next.fetch_add(work.block); at < work.bytes;
             at = next.fetch_add(work.block)) {
          const auto got = pread(work.fd, to, work.block, static_cast<off_t>(at));
          if (std::cmp_not_equal(got, work.block)) failed = true;
        }
      });
    }
  }
  if (failed) throw std::runtime_error("bare read: a read came back short");
}

#if PENSTOCK_WITH_URING

bool read_by_uring(const BareRead& work) {
  io_uring ring{};
  if (io_uring_queue_init(static_cast<unsigned>(work.in_flight), &ring, 0) != 0) return false;
  std::size_t next = 0, under_way = 0;
  bool failed = false;
  const auto begin = [&](std::uint64_t place) {
    if (next == work.bytes) return;
    io_uring_sqe* entry = io_uring_get_sqe(&ring);
    io_uring_prep_read(entry, work.fd, work.memory + place * work.block,
                       static_cast<unsigned>(work.block), next);
    io_uring_sqe_set_data64(entry, place);
    next += work.block;
    ++under_way;
  };
  for (std::uint64_t place = 0; place < work.in_flight; ++place) begin(place);
  while (under_way > 0) {
    io_uring_submit_and_wait(&ring, 1);
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring, &entry) == 0) {
      failed = failed || std::cmp_not_equal(entry->res, work.block);
      const std::uint64_t place = io_uring_cqe_get_data64(entry);
      io_uring_cqe_seen(&ring, entry);
      --under_way;
      begin(place);
    }
  }
  io_uring_queue_exit(&ring);
  if (failed) throw std::runtime_error("bare read: a read came back short");
  return true;
}

#else

bool read_by_uring(const BareRead& /*work*/) { return false; }

#endif

}  // namespace bench
