// Host memory in huge pages. Pages of 2 MiB instead of 4 KiB make it faster to touch memory for the
// first time, to page-lock it, and to read it.
#pragma once

#include <cstddef>

namespace ps::detail {

inline constexpr std::size_t huge_page = std::size_t{2} << 20;

// From this size on, buffers use huge pages: rounding up to whole pages then costs little.
inline constexpr std::size_t huge_pages_from = std::size_t{8} << 20;

// Asks the system for huge pages; without them the memory works all the same.
void advise_huge_pages(void* data, std::size_t bytes) noexcept;

// A range of addresses that begins at a huge page. Memory comes behind it when it is touched.
class HugePages {
 public:
  // Throws OutOfMemory if there are no such addresses.
  explicit HugePages(std::size_t bytes);
  ~HugePages();
  HugePages(HugePages&& other) noexcept;
  HugePages& operator=(HugePages&& other) noexcept;

  std::byte* data() const { return data_; }

  // Takes memory for a part of the range, on several threads, and fills it with zeros.
  void touch(std::size_t offset, std::size_t bytes) const;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ps::detail
