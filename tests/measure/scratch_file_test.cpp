#include "measure/scratch_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "host/random_fill.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "support/full_disk.h"

namespace ps::detail {
namespace {

constexpr std::size_t size = 64 * KiB;

TEST(ScratchFile, HasNoNameFromTheStart) {
  const test::TemporaryDirectory folder;
  const ScratchFile file(folder.path());
  EXPECT_TRUE(folder.empty());
  EXPECT_GT(file.free_bytes(), 0u);
}

void expect_round_trip(const ScratchFile& file) {
  const PinnedBuffer written(Device::cpu(), size), read(Device::cpu(), size);
  fill_random({written.view().data, size}, 7);
  std::memset(read.view().data, 0, size);
  file.write(written.view().data, size, size);
  file.flush();
  file.forget();
  file.read(read.view().data, size, size);
  EXPECT_EQ(std::memcmp(read.view().data, written.view().data, size), 0);
}

TEST(ScratchFile, GivesBackWhatWasWritten) {
  const test::TemporaryDirectory folder;
  expect_round_trip(ScratchFile(folder.path()));
}

TEST(ScratchFile, GivesBackWhatWasWrittenThroughThePageCache) {
  const test::TemporaryDirectory folder;
  ScratchFile file(folder.path());
  file.use_page_cache();
  EXPECT_FALSE(file.direct());
  expect_round_trip(file);
  // Only the page cache takes an odd number of bytes.
  const std::byte odd[3] = {};
  EXPECT_NO_THROW(file.write(odd, sizeof odd, 1));
}

TEST(ScratchFile, SaysWhenItEndsEarly) {
  const test::TemporaryDirectory folder;
  const ScratchFile file(folder.path());
  const PinnedBuffer buffer(Device::cpu(), size);
  EXPECT_THROW(file.read(buffer.view().data, size, 0), SystemError);
}

TEST(ScratchFile, NamesTheDirectoryThatRefuses) {
  const test::TemporaryDirectory folder;
  const auto missing = folder.path() / "missing";
  const auto plain = folder.write("file", "");
  // Not even root creates files in /sys.
  for (const std::filesystem::path& bad : {missing, plain, std::filesystem::path("/sys")}) {
    try {
      const ScratchFile file(bad);
      ADD_FAILURE() << bad << " was accepted";
    } catch (const SystemError& error) {
      EXPECT_NE(std::string(error.what()).find(bad.string()), std::string::npos) << error.what();
    }
  }
}

TEST(ScratchFile, ReportsALimitOnItsSize) {
  const test::TemporaryDirectory folder;
  const ScratchFile file(folder.path());
  const PinnedBuffer buffer(Device::cpu(), size);
  const test::FileSizeLimit limit(size);
  EXPECT_NO_THROW(file.write(buffer.view().data, size, 0));
  try {
    file.write(buffer.view().data, size, size);
    ADD_FAILURE() << "wrote past the limit";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code().value(), EFBIG);
  }
}

}  // namespace
}  // namespace ps::detail
