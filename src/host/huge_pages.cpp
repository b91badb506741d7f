#include "host/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/host/parallel.h"

namespace ps::detail {

void advise_huge_pages(void* data, std::size_t bytes) noexcept {
  (void)madvise(data, bytes, MADV_HUGEPAGE);
}

HugePages::HugePages(std::size_t bytes) : bytes_(align_up(bytes, huge_page, "bytes")) {
  // One page more, of which the parts before and behind the aligned range go back.
  const std::size_t all = checked_add(bytes_, huge_page, "bytes");
  void* mapped = mmap(nullptr, all, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw OutOfMemory("addresses", bytes);
  auto* begin = static_cast<std::byte*>(mapped);
  const std::size_t before =
      (huge_page - reinterpret_cast<std::uintptr_t>(begin) % huge_page) % huge_page;
  data_ = begin + before;
  if (before != 0) munmap(begin, before);
  munmap(data_ + bytes_, huge_page - before);
  advise_huge_pages(data_, bytes_);
}

HugePages::~HugePages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

HugePages::HugePages(HugePages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HugePages& HugePages::operator=(HugePages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void HugePages::touch(std::size_t offset, std::size_t bytes) const {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  volatile std::byte* const begin = data_ + offset;
  parallel_ranges(bytes, huge_page, [&](std::size_t from, std::size_t to) {
    // In steps of small pages: the system may not have given huge ones.
    for (std::size_t i = from; i < to; i += page) begin[i] = std::byte{0};
  });
}

}  // namespace ps::detail
