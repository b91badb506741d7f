// A file read while the CPU computes: nothing is left behind, and bad input is named.
#include "penstock/measure/file_overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/error.h"
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
  EXPECT_EQ(r->times.floor, std::max(r->read_alone.seconds(), r->compute_alone.seconds()));
  EXPECT_EQ(r->times.pipelined, r->pipelined.seconds);
  EXPECT_TRUE(here.empty());
}

// A clock that is told what to show. Every run still happens.
struct FakeClock {
  std::map<std::string, std::vector<double>, std::less<>> shows;  // the last one from then on
  std::map<std::string, std::size_t, std::less<>> asked{};

  double operator()(std::string_view what, const std::function<void()>& run) {
    run();
    const std::vector<double>& seconds = shows.at(std::string(what));
    return seconds[std::min(asked[std::string(what)]++, seconds.size() - 1)];
  }
};

TEST(FileOverlap, TheFloorIsTheBestPassOfTheSlowerEngine) {
  const test::TemporaryDirectory here;
  FakeClock clock{{{"read alone", {5, 3, 4}},
                   {"compute alone", {9, 9, 2}},
                   {"pipelined", {3.5}},
                   {"sequential", {8}}}};
  FileOverlapOptions options = small(here.path());
  options.timer = std::ref(clock);
  const auto r = measure_file_overlap(options);
  EXPECT_EQ(r->times.floor, 3);
  EXPECT_EQ(r->read_alone.passes(), 3u);
  EXPECT_TRUE(r->verdict.kept());
  EXPECT_EQ(r->tries, 1);
}

TEST(FileOverlap, FasterThanItsFloorIsMeasuredThreeTimesAndThenDropped) {
  const test::TemporaryDirectory here;
  FakeClock clock{
      {{"read alone", {1}}, {"compute alone", {1}}, {"pipelined", {0.97}}, {"sequential", {2}}}};
  FileOverlapOptions options = small(here.path());
  options.timer = std::ref(clock);
  const auto r = measure_file_overlap(options);
  EXPECT_EQ(r->tries, 3);
  EXPECT_EQ(clock.asked["pipelined"], 3u);
  EXPECT_FALSE(r->verdict.kept());
  EXPECT_NE(r->verdict.reason.find("0.970 x its floor"), std::string::npos) << r->verdict.reason;
  EXPECT_EQ(r->pipelined.seconds, 0.97);  // the time itself is kept
}

TEST(FileOverlap, ALaterPassOfAnEngineAloneCanSaveAResult) {
  const test::TemporaryDirectory here;
  FakeClock clock{{{"read alone", {1, 1, 1, 0.9}},
                   {"compute alone", {0.5}},
                   {"pipelined", {0.95}},
                   {"sequential", {2}}}};
  FileOverlapOptions options = small(here.path());
  options.timer = std::ref(clock);
  const auto r = measure_file_overlap(options);
  EXPECT_EQ(r->tries, 2);
  EXPECT_TRUE(r->verdict.kept());
  EXPECT_EQ(r->times.floor, 0.9);
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
  expect_refused("tries", [](auto& o) { o.tries = 0; });
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
