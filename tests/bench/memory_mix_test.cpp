// Memory alone: every way writes all of its target, whatever the mix.
#include "support/memory_mix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "penstock/base/units.h"
#include "penstock/host/buffer.h"

namespace bench {
namespace {

TEST(MemoryMix, EveryWayWritesEveryLine) {
  struct Sizes {
    std::size_t read, written;
  };
  for (const Sizes& sizes :
       {Sizes{3 * ps::MiB, ps::MiB}, Sizes{ps::MiB, ps::MiB}, Sizes{ps::MiB, 2 * ps::MiB + 64}}) {
    const ps::PinnedBuffer from(ps::Device::cpu(), sizes.read);
    const ps::PinnedBuffer to(ps::Device::cpu(), sizes.written);
    std::memset(from.view().data, 0x5A, sizes.read);
    for (const bool one_thread : {false, true}) {
      const auto passes = memory_passes({from.view(), to.view(), one_thread});
      EXPECT_EQ(passes.size(), one_thread ? 12u : 24u);
      for (const auto& pass : passes) {
        std::memset(to.view().data, 0xFF, sizes.written);
        pass();
        const std::byte* const begin = to.view().data;
        EXPECT_EQ(std::count(begin, begin + sizes.written, std::byte{0xFF}), 0);
        EXPECT_EQ(begin[sizes.written - 1], std::byte{0x5A});
      }
    }
  }
}

}  // namespace
}  // namespace bench
