#include "penstock/measure/limits.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/limits_parts.h"
#include "penstock/base/error.h"
#include "support/full_disk.h"

namespace ps {
namespace {

// As small as the figures still mean something; nothing here looks at how large they are.
LimitsOptions tiny(const std::filesystem::path& directory) {
  LimitsOptions options;
  options.directory = directory;
  options.link_bytes = options.device_bytes = options.host_bytes = 1 * MiB;
  options.disk_bytes = 32 * MiB;
  options.seconds = 0.01;
  options.repetitions = 7;
  return options;
}

TEST(MeasureLimits, OnTheCpuKnowsMemoryAndDisk) {
  const test::TemporaryDirectory folder;
  const Limits limits = measure_limits(Device::cpu(), tiny(folder.path()));
  EXPECT_EQ(limits.rates.size(), 3u);
  for (const Ceiling ceiling : {Ceiling::host_copy, Ceiling::disk_read, Ceiling::disk_write}) {
    const Rate* rate = limits.find(ceiling);
    ASSERT_NE(rate, nullptr) << name(ceiling);
    EXPECT_TRUE(std::isfinite(rate->bytes_per_second) && rate->bytes_per_second > 0);
    EXPECT_GT(rate->bytes, 0u);
    EXPECT_EQ(rate->repetitions, 7);
  }
  EXPECT_EQ(limits.find(Ceiling::h2d), nullptr);
  EXPECT_EQ(limits.key, machine_key(Device::cpu()));
  EXPECT_EQ(limits.directory, folder.path().string());
  EXPECT_EQ(limits.date.size(), std::string("2026-01-31T12:00:00Z").size());
  EXPECT_TRUE(folder.empty());
}

TEST(MeasureLimits, MeasuresOnlyWhatIsAskedFor) {
  LimitsOptions options = tiny("/nowhere");
  options.disk = false;
  const Limits limits = measure_limits(Device::cpu(), options);
  EXPECT_EQ(limits.rates.size(), 1u);
  EXPECT_EQ(limits.directory, "");
  options.host = false;
  EXPECT_TRUE(measure_limits(Device::cpu(), options).rates.empty());
}

TEST(MeasureLimits, TellsHowFarItIsInOrder) {
  const test::TemporaryDirectory folder;
  LimitsOptions options = tiny(folder.path());
  double last = 0;
  std::vector<Ceiling> order;
  options.progress = [&](const LimitsProgress& progress) {
    EXPECT_GE(progress.fraction, last);
    EXPECT_LT(progress.fraction, 1);
    last = progress.fraction;
    if (order.empty() || order.back() != progress.ceiling) order.push_back(progress.ceiling);
  };
  measure_limits(Device::cpu(), options);
  EXPECT_EQ(order, (std::vector{Ceiling::disk_write, Ceiling::disk_read, Ceiling::host_copy}));
  EXPECT_GT(last, 0.8);
}

TEST(MeasureLimits, StopsWhereverItIsAskedToAndLeavesNoFile) {
  const test::TemporaryDirectory folder;
  std::size_t ticks = 0;
  LimitsOptions options = tiny(folder.path());
  options.progress = [&](const LimitsProgress&) { ++ticks; };
  measure_limits(Device::cpu(), options);
  ASSERT_GT(ticks, 20u);

  for (std::size_t at = 0; at < ticks; at += 5) {
    std::stop_source source;
    std::size_t seen = 0;
    options.stop = source.get_token();
    options.progress = [&](const LimitsProgress&) {
      if (seen++ == at) source.request_stop();
    };
    if (at + 1 < ticks) {
      EXPECT_THROW(measure_limits(Device::cpu(), options), Cancelled) << "at tick " << at;
    }
    EXPECT_TRUE(folder.empty()) << "at tick " << at;
  }
}

TEST(MeasureLimits, DoesNothingWhenAlreadyStopped) {
  const test::TemporaryDirectory folder;
  std::stop_source source;
  source.request_stop();
  LimitsOptions options = tiny(folder.path() / "missing");
  options.stop = source.get_token();
  EXPECT_THROW(measure_limits(Device::cpu(), options), Cancelled);
}

void expect_disk_error(const LimitsOptions& options, int code) {
  try {
    measure_limits(Device::cpu(), options);
    ADD_FAILURE() << "measured " << options.directory;
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code().value(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(options.directory.string()), std::string::npos)
        << error.what();
  }
}

TEST(MeasureLimits, NamesADirectoryThatIsNotThere) {
  const test::TemporaryDirectory folder;
  expect_disk_error(tiny(folder.path() / "missing"), ENOENT);
}

TEST(MeasureLimits, ReportsAFileSizeLimitAndLeavesNoFile) {
  const test::TemporaryDirectory folder;
  const test::FileSizeLimit limit(10 * MiB);
  expect_disk_error(tiny(folder.path()), EFBIG);
  EXPECT_TRUE(folder.empty());
}

TEST(MeasureLimits, ReportsAFullDiskAndLeavesNoFile) {
  const test::SmallDisk disk("10m");
  if (!disk.mounted()) GTEST_SKIP() << "this user may not mount";
  expect_disk_error(tiny(disk.path()), ENOSPC);
  EXPECT_TRUE(disk.empty());
}

TEST(MeasureLimits, LeavesRoomOnASmallDiskAndSaysThatItIsMemory) {
  const test::SmallDisk disk("100m");
  if (!disk.mounted()) GTEST_SKIP() << "this user may not mount";
  LimitsOptions options = tiny(disk.path());
  options.disk_bytes = 1 * GiB;
  const Limits limits = measure_limits(Device::cpu(), options);
  ASSERT_NE(limits.find(Ceiling::disk_read), nullptr);
  EXPECT_NE(limits.find(Ceiling::disk_read)->note.find("tmpfs"), std::string::npos);
}

TEST(MeasureLimits, RefusesOptionsOutOfRange) {
  const auto refused = [](const char* argument, auto change) {
    LimitsOptions options = tiny(".");
    change(options);
    try {
      measure_limits(Device::cpu(), options);
      ADD_FAILURE() << argument;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), argument);
    }
  };
  refused("options.link_bytes", [](LimitsOptions& o) { o.link_bytes = 1; });
  refused("options.device_bytes", [](LimitsOptions& o) { o.device_bytes = 0; });
  refused("options.host_bytes", [](LimitsOptions& o) { o.host_bytes = MiB - 1; });
  refused("options.disk_bytes", [](LimitsOptions& o) { o.disk_bytes = 0; });
  refused("options.repetitions", [](LimitsOptions& o) { o.repetitions = 6; });
  refused("options.repetitions", [](LimitsOptions& o) { o.repetitions = 100'000; });
  for (const double seconds : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    refused("options.seconds", [&](LimitsOptions& o) { o.seconds = seconds; });
  }
}

TEST(Ceilings, HaveNamesOfTheirOwn) {
  for (const Ceiling a : all_ceilings) {
    EXPECT_NE(name(a), "unknown");
    EXPECT_NE(description(a), "unknown");
    for (const Ceiling b : all_ceilings) {
      EXPECT_EQ(a == b, name(a) == name(b));
      EXPECT_EQ(a == b, description(a) == description(b));
    }
  }
}

TEST(Affordable, TakesAShareOfWhatThereIs) {
  using detail::affordable;
  EXPECT_EQ(affordable(256 * MiB, 64 * GiB), 256 * MiB);
  EXPECT_EQ(affordable(256 * MiB, 1 * GiB), 128 * MiB);
  EXPECT_EQ(affordable(256 * MiB, 0), 4 * MiB);
  EXPECT_EQ(affordable(1 * MiB, 0), 1 * MiB);
  EXPECT_EQ(affordable(10 * MiB + 1, 64 * GiB), 10 * MiB);
}

TEST(LimitsJson, NamesWhatWasMeasured) {
  Limits limits;
  limits.key.device = "GPU";
  limits.rates[Ceiling::both_ways] = {101e9, 512, 9, "a note"};
  const auto json = nlohmann::json::parse(as_json(limits));
  EXPECT_EQ(json["device"], "GPU");
  EXPECT_EQ(json["rates"].size(), 1u);
  EXPECT_EQ(json["rates"]["both_ways"]["bytes_per_second"], 101e9);
  EXPECT_EQ(json["rates"]["both_ways"]["note"], "a note");
}

}  // namespace
}  // namespace ps
