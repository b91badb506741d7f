#include "host/copy_past_caches.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

TEST(CopyPastCaches, AnySizeAndAlignment) {
  constexpr std::uint8_t untouched = 0xA5;
  constexpr std::size_t margin = 128;
  std::vector<std::uint8_t> in(5000);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  for (const std::size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 1000, 4096}) {
    for (const std::size_t from : {0, 1, 16, 33}) {
      for (std::size_t to = 0; to < 66; to += to < 3 ? 1 : 13) {
        std::vector<std::uint8_t> out(to + bytes + margin, untouched);
        ps::detail::copy_past_caches(out.data() + to, in.data() + from, bytes);
        for (std::size_t i = 0; i < out.size(); ++i) {
          const bool inside = i >= to && i < to + bytes;
          ASSERT_EQ(out[i], inside ? in[from + i - to] : untouched) << bytes << " bytes, " << i;
        }
      }
    }
  }
}

}  // namespace
