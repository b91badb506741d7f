// A file read while the CPU computes: nothing is left behind, and bad input is named.
#include "penstock/measure/file_overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "penstock/base/error.h"
#include "penstock/measure/cancelled.h"
#include "support/full_disk.h"
#include "support/temporary_directory.h"

namespace ps {
namespace {

FileOverlapOptions small(const std::filesystem::path& directory) {
  return {.directory = directory, .bytes = MiB, .chunk = 128 * KiB, .repeats = 1};
}

TEST(FileOverlap, ReadsAndComputesEveryChunkOnce) {
  const test::TemporaryDirectory here;
  const auto r = measure_file_overlap(small(here.path()));
  EXPECT_EQ(r->chunks, 8u);
  EXPECT_EQ(r->sequential_timeline.entries().size(), 16u);
  EXPECT_EQ(r->pipelined_timeline.entries().size(), 16u);
  EXPECT_GE(r->rounds, 1);
  EXPECT_EQ(r->times.floor, std::max(r->read_alone, r->compute_alone));
  EXPECT_EQ(r->times.pipelined, r->pipelined.seconds);
  EXPECT_TRUE(here.empty());
}

TEST(FileOverlap, RefusesNonsenseByName) {
  const test::TemporaryDirectory here;
  const auto expect_refused = [&](const char* argument, auto change) {
    FileOverlapOptions options = small(here.path());
    change(options);
    try {
      measure_file_overlap(options);
      ADD_FAILURE() << argument << " was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(argument), std::string::npos) << error.what();
    }
  };
  expect_refused("chunk", [](auto& o) { o.chunk = 0; });
  expect_refused("chunk", [](auto& o) { o.chunk = 4095; });
  expect_refused("bytes", [](auto& o) { o.bytes = 0; });
  expect_refused("bytes", [](auto& o) { o.bytes = o.chunk + 4096; });
  expect_refused("depth", [](auto& o) { o.depth = 0; });
  expect_refused("repeats", [](auto& o) { o.repeats = 0; });
  expect_refused("compute_ratio", [](auto& o) { o.compute_ratio = -1; });
  expect_refused("compute_ratio",
                 [](auto& o) { o.compute_ratio = std::numeric_limits<double>::quiet_NaN(); });
  EXPECT_TRUE(here.empty());
}

TEST(FileOverlap, NamesTheDirectoryItCannotWrite) {
  try {
    measure_file_overlap(small("/no/such/directory"));
    FAIL() << "wrote into a directory that does not exist";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/directory"), std::string::npos);
  }
}

TEST(FileOverlap, AFullDiskIsAnErrorAndLeavesNothing) {
  const test::TemporaryDirectory here;
  {
    const test::FileSizeLimit limit(512 * KiB);
    EXPECT_THROW(measure_file_overlap(small(here.path())), SystemError);
  }
  EXPECT_TRUE(here.empty());
}

TEST(FileOverlap, StopsWhenAskedToAndLeavesNothing) {
  const test::TemporaryDirectory here;
  for (const std::string_view moment :
       {"writing the file", "engines alone", "sequential and pipelined"}) {
    std::stop_source source;
    FileOverlapOptions options = small(here.path());
    options.stop = source.get_token();
    options.progress = [&](std::string_view what, double) {
      if (what == moment) source.request_stop();
    };
    EXPECT_THROW(measure_file_overlap(options), Cancelled) << moment;
    EXPECT_TRUE(here.empty());
  }
}

}  // namespace
}  // namespace ps
