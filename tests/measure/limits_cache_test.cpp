#include "penstock/measure/limits_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "penstock/base/error.h"
#include "support/environment.h"
#include "support/temporary_directory.h"

namespace ps {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using test::Variable;

Limits limits_of(const std::string& device, double speed) {
  Limits limits;
  limits.key = {device, "1.0", "CPU", "0.1.0"};
  limits.date = "2026-11-15T08:30:00Z";
  limits.rates[Ceiling::h2d] = {speed, 4096, 7, ""};
  return limits;
}

TEST(LimitsCachePath, FollowsTheEnvironment) {
  const Variable penstock("PENSTOCK_CACHE", "/p"), xdg("XDG_CACHE_HOME", "/x"), home("HOME", "/h");
  EXPECT_EQ(limits_cache_path(), "/p/limits.json");
  {
    const Variable without("PENSTOCK_CACHE", std::nullopt);
    EXPECT_EQ(limits_cache_path(), "/x/penstock/limits.json");
    const Variable empty("XDG_CACHE_HOME", "");
    EXPECT_EQ(limits_cache_path(), "/h/.cache/penstock/limits.json");
    const Variable homeless("HOME", std::nullopt);
    EXPECT_EQ(limits_cache_path(), "");
  }
}

TEST(LimitsCache, KeepsOneEntryForEachMachine) {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "new/folders/limits.json";
  EXPECT_TRUE(load_limits(file).empty());
  save_limits(file, limits_of("A", 1));
  save_limits(file, limits_of("B", 2));
  save_limits(file, limits_of("A", 3));
  const std::vector<Limits> entries = load_limits(file);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].key.device, "B");
  EXPECT_EQ(entries[1].find(Ceiling::h2d)->bytes_per_second, 3);
}

TEST(LimitsCache, TellsMachinesApartByEveryPartOfTheKey) {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "limits.json";
  Limits limits = limits_of("A", 1);
  save_limits(file, limits);
  limits.key.driver = "2.0";
  save_limits(file, limits);
  limits.key.version = "0.2.0";
  save_limits(file, limits);
  limits.key.cpu = "other";
  save_limits(file, limits);
  EXPECT_EQ(load_limits(file).size(), 4u);
}

TEST(LimitsCache, ReplacesAFileThatIsNotIts) {
  const TemporaryDirectory folder;
  const fs::path file = folder.write("limits.json", "{\"schema\": 99}");
  EXPECT_THROW(load_limits(file), InvalidArgument);
  save_limits(file, limits_of("A", 1));
  EXPECT_EQ(load_limits(file).size(), 1u);
}

TEST(LimitsCache, LeavesOneFileThatOthersMayRead) {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "limits.json";
  save_limits(file, limits_of("A", 1));
  save_limits(file, limits_of("B", 1));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
  EXPECT_EQ(fs::status(file).permissions(), fs::perms{0644});
}

TEST(LimitsCache, SaysWhyItCannotBeWrittenAndLeavesNothing) {
  const TemporaryDirectory folder;
  folder.write("plain", "");
  EXPECT_THROW(save_limits(folder.path() / "plain/limits.json", limits_of("A", 1)), SystemError);
  // A directory in the file's place: the new file cannot take it.
  fs::create_directories(folder.path() / "limits.json/inside");
  EXPECT_THROW(save_limits(folder.path() / "limits.json", limits_of("A", 1)), SystemError);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2);
}

TEST(LimitsCache, RefusesWhatIsTooLargeOrNoFile) {
  const TemporaryDirectory folder;
  EXPECT_THROW(load_limits(folder.write("large.json", std::string(2 * MiB, ' '))), SystemError);
  EXPECT_THROW(load_limits(folder.path()), SystemError);
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(load_limits(pipe), InvalidArgument);  // empty, and above all not waited for
}

TEST(LimitsCache, ReadersSeeWholeFilesWhileWritersReplaceThem) {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "limits.json";
  save_limits(file, limits_of("A", 1));
  std::jthread writer([&](const std::stop_token& stop) {
    for (int i = 1; !stop.stop_requested(); ++i) save_limits(file, limits_of("A", i));
  });
  for (int i = 0; i < 200; ++i) EXPECT_EQ(load_limits(file).size(), 1u);
}

class ObtainLimits : public testing::Test {
 protected:
  LimitsRequest request() const {
    LimitsRequest request;
    request.measure.directory = folder_.path();
    request.measure.host_bytes = MiB;
    request.measure.disk_bytes = 32 * MiB;
    request.measure.seconds = 0.01;
    request.measure.repetitions = 7;
    return request;
  }

  TemporaryDirectory folder_;
  Variable cache_{"PENSTOCK_CACHE", folder_.path() / "cache"};
  const fs::path file_ = limits_cache_path();
};

TEST_F(ObtainLimits, MeasuresOnceAndThenKnows) {
  const LimitsAnswer first = obtain_limits(Device::cpu(), request());
  EXPECT_FALSE(first.cached);
  EXPECT_TRUE(first.warnings.empty());
  LimitsRequest again = request();
  again.measure.progress = [](const LimitsProgress&) { ADD_FAILURE() << "measured again"; };
  const LimitsAnswer second = obtain_limits(Device::cpu(), again);
  EXPECT_TRUE(second.cached);
  EXPECT_EQ(second.limits.date, first.limits.date);
  EXPECT_EQ(as_json(second.limits), as_json(first.limits));
}

TEST_F(ObtainLimits, MeasuresAnewWhenAskedTo) {
  obtain_limits(Device::cpu(), request());
  LimitsRequest fresh = request();
  fresh.fresh = true;
  EXPECT_FALSE(obtain_limits(Device::cpu(), fresh).cached);
}

TEST_F(ObtainLimits, KeepsNothingWhenToldSo) {
  LimitsRequest rough = request();
  rough.keep = false;
  obtain_limits(Device::cpu(), rough);
  EXPECT_FALSE(fs::exists(file_));
}

TEST_F(ObtainLimits, MeasuresWhatTheCacheLacks) {
  LimitsRequest memory_only = request();
  memory_only.measure.disk = false;
  obtain_limits(Device::cpu(), memory_only);
  EXPECT_FALSE(obtain_limits(Device::cpu(), request()).cached);
  EXPECT_TRUE(obtain_limits(Device::cpu(), memory_only).cached);
}

TEST_F(ObtainLimits, MeasuresAnotherDirectoryOnlyWhenItMustBeThatOne) {
  obtain_limits(Device::cpu(), request());
  const TemporaryDirectory elsewhere;
  LimitsRequest other = request();
  other.measure.directory = elsewhere.path();
  EXPECT_TRUE(obtain_limits(Device::cpu(), other).cached);
  other.this_directory = true;
  EXPECT_FALSE(obtain_limits(Device::cpu(), other).cached);
  EXPECT_TRUE(obtain_limits(Device::cpu(), other).cached);
}

TEST_F(ObtainLimits, WarnsOfACacheItCannotUseAndGoesOn) {
  for (const char* bad : {"", "{", "null", "{\"schema\": 2, \"entries\": []}"}) {
    folder_.write("cache/limits.json", bad);
    const LimitsAnswer answer = obtain_limits(Device::cpu(), request());
    EXPECT_FALSE(answer.cached) << bad;
    ASSERT_EQ(answer.warnings.size(), 1u) << bad;
    EXPECT_NE(answer.warnings[0].find(file_.string()), std::string::npos) << answer.warnings[0];
    EXPECT_TRUE(obtain_limits(Device::cpu(), request()).cached) << bad;
  }
}

TEST_F(ObtainLimits, WarnsWhenItCannotKeepTheFigures) {
  folder_.write("cache", "a file where a folder should be");
  const LimitsAnswer answer = obtain_limits(Device::cpu(), request());
  EXPECT_FALSE(answer.limits.rates.empty());
  ASSERT_EQ(answer.warnings.size(), 1u);
  EXPECT_NE(answer.warnings[0].find("could not be cached"), std::string::npos)
      << answer.warnings[0];
}

TEST_F(ObtainLimits, DoesWithoutAnyPlaceForTheCache) {
  const Variable none("PENSTOCK_CACHE", std::nullopt), xdg("XDG_CACHE_HOME", std::nullopt),
      home("HOME", std::nullopt);
  const LimitsAnswer answer = obtain_limits(Device::cpu(), request());
  EXPECT_FALSE(answer.cached);
  EXPECT_TRUE(answer.warnings.empty());
}

}  // namespace
}  // namespace ps
