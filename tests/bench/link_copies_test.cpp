// Blocks that are copied at once.
#include "support/link_copies.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace bench {
namespace {

using Views = std::vector<std::pair<std::size_t, std::size_t>>;  // where each begins, and its bytes

class JoinedBlocks : public testing::Test {
 protected:
  ps::MemoryView block(std::size_t begin, std::size_t bytes) {
    return {memory_.data() + begin, bytes, {}};
  }
  Views joined(const std::vector<ps::MemoryView>& blocks, std::size_t most_bytes) const {
    Views all;
    for (const ps::MemoryView& view : joined_blocks(blocks, most_bytes)) {
      all.emplace_back(static_cast<std::size_t>(view.data - memory_.data()), view.bytes);
    }
    return all;
  }

  std::array<std::byte, 4096> memory_{};
};

// As compressed experts lie: each begins at a multiple of 64 bytes.
TEST_F(JoinedBlocks, PaddingBelongsToThem) {
  EXPECT_EQ(joined({block(0, 100), block(128, 65), block(256, 1)}, 4096), (Views{{0, 257}}));
}

TEST_F(JoinedBlocks, AreNotLargerThanTheMemory) {
  const std::vector<ps::MemoryView> blocks = {block(0, 100), block(128, 100), block(256, 100)};
  EXPECT_EQ(joined(blocks, 228), (Views{{0, 228}, {256, 100}}));
  EXPECT_EQ(joined(blocks, 227), (Views{{0, 100}, {128, 100}, {256, 100}}));
}

TEST_F(JoinedBlocks, OthersStayApart) {
  EXPECT_EQ(joined({block(0, 100), block(192, 10), block(128, 10)}, 4096),
            (Views{{0, 100}, {192, 10}, {128, 10}}));
  EXPECT_EQ(joined({}, 4096), Views{});
}

TEST_F(JoinedBlocks, CopiesOfThemEnd) {
  const LinkCopies link(ps::Device::cpu(), 512);
  const std::vector<ps::MemoryView> blocks = {block(0, 100), block(128, 300), block(1024, 512)};
  EXPECT_NO_THROW(link.joined(blocks));
  EXPECT_NO_THROW(link.one_by_one(blocks));
  EXPECT_NO_THROW(link.by_two_streams(blocks));
}

}  // namespace
}  // namespace bench
