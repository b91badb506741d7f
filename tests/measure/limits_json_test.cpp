// Reading the cache: what is not exactly ours is refused, and by name.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "penstock/base/error.h"
#include "penstock/measure/limits_cache.h"

namespace ps {
namespace {

Limits example() {
  Limits limits;
  limits.key = {"NVIDIA H200", "580.65.06", "Fast CPU", "0.1.0"};
  limits.date = "2026-11-15T08:30:00Z";
  limits.directory = "/data";
  limits.rates[Ceiling::h2d] = {55.2e9, 268435456, 9, ""};
  limits.rates[Ceiling::disk_read] = {2.2e9, 134217728, 7, "with \"quotes\" and \xc3\xa9"};
  return limits;
}

TEST(ParseLimits, ReadsWhatFormatWrites) {
  Limits other;
  other.key.device = "CPU";
  other.date = "1999-12-31T23:59:59Z";
  const std::vector<Limits> back = parse_limits(format_limits({example(), other}));
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].key, example().key);
  EXPECT_EQ(back[0].date, example().date);
  EXPECT_EQ(back[0].directory, "/data");
  ASSERT_EQ(back[0].rates.size(), 2u);
  EXPECT_EQ(back[0].find(Ceiling::h2d)->bytes_per_second, 55.2e9);
  EXPECT_EQ(back[0].find(Ceiling::disk_read)->note, "with \"quotes\" and \xc3\xa9");
  EXPECT_EQ(back[0].find(Ceiling::disk_read)->repetitions, 7);
  EXPECT_EQ(back[1].key.device, "CPU");
  EXPECT_TRUE(back[1].rates.empty());
  EXPECT_TRUE(parse_limits(format_limits({})).empty());
}

struct Case {
  const char* pointer;  // of the value that is put in place
  const char* value;    // empty: the field is removed
  const char* argument;
};

class SpoiltLimits : public testing::TestWithParam<Case> {};

TEST_P(SpoiltLimits, NamesTheField) {
  const auto [pointer, value, argument] = GetParam();
  auto json = nlohmann::json::parse(format_limits({example()}));
  const nlohmann::json::json_pointer at(pointer);
  if (std::string_view(value).empty()) {
    json.at(at.parent_pointer()).erase(at.back());
  } else {
    json[at] = nlohmann::json::parse(value);
  }
  try {
    parse_limits(json.dump());
    ADD_FAILURE() << "accepted " << json.dump();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), argument) << error.what();
  }
}

const Case cases[] = {
    {"/schema", "2", "limits.schema"},
    {"/schema", "\"1\"", "limits.schema"},
    {"/schema", "", "limits.schema"},
    {"/extra", "1", "limits.extra"},
    {"/entries", "{}", "limits.entries"},
    {"/entries", "", "limits.entries"},
    {"/entries/0", "3", "limits.entries[0]"},
    {"/entries/1", "null", "limits.entries[1]"},
    {"/entries/0/device", "7", "limits.entries[0].device"},
    {"/entries/0/driver", "", "limits.entries[0].driver"},
    {"/entries/0/cpu", "null", "limits.entries[0].cpu"},
    {"/entries/0/version", "[]", "limits.entries[0].version"},
    {"/entries/0/colour", "1", "limits.entries[0].colour"},
    {"/entries/0/date", "\"yesterday\"", "limits.entries[0].date"},
    {"/entries/0/date", "\"2026-11-15T08:30:00\"", "limits.entries[0].date"},
    {"/entries/0/date", "5", "limits.entries[0].date"},
    {"/entries/0/directory", "false", "limits.entries[0].directory"},
    {"/entries/0/rates", "[]", "limits.entries[0].rates"},
    {"/entries/0/rates/warp", "{}", "limits.entries[0].rates.warp"},
    {"/entries/0/rates/h2d", "55.2", "limits.entries[0].rates.h2d"},
    {"/entries/0/rates/h2d/bytes_per_second", "0", "limits.entries[0].rates.h2d.bytes_per_second"},
    {"/entries/0/rates/h2d/bytes_per_second", "-1", "limits.entries[0].rates.h2d.bytes_per_second"},
    {"/entries/0/rates/h2d/bytes_per_second", "null",
     "limits.entries[0].rates.h2d.bytes_per_second"},
    {"/entries/0/rates/h2d/bytes_per_second", "\"fast\"",
     "limits.entries[0].rates.h2d.bytes_per_second"},
    {"/entries/0/rates/h2d/bytes", "0", "limits.entries[0].rates.h2d.bytes"},
    {"/entries/0/rates/h2d/bytes", "-5", "limits.entries[0].rates.h2d.bytes"},
    {"/entries/0/rates/h2d/bytes", "1.5", "limits.entries[0].rates.h2d.bytes"},
    {"/entries/0/rates/h2d/bytes", "18446744073709551615", "limits.entries[0].rates.h2d.bytes"},
    {"/entries/0/rates/h2d/repetitions", "4294967296", "limits.entries[0].rates.h2d.repetitions"},
    {"/entries/0/rates/h2d/repetitions", "", "limits.entries[0].rates.h2d.repetitions"},
    {"/entries/0/rates/h2d/note", "1", "limits.entries[0].rates.h2d.note"},
    {"/entries/0/rates/h2d/more", "1", "limits.entries[0].rates.h2d.more"},
};

INSTANTIATE_TEST_SUITE_P(ParseLimits, SpoiltLimits, testing::ValuesIn(cases));

TEST(ParseLimits, RefusesWhatIsNotJson) {
  for (const std::string_view text :
       {"", " ", "limits", "{", "[]]", "\xff\xfe", "{\"schema\":1,\"entries\":[1e999]}"}) {
    EXPECT_THROW(parse_limits(text), InvalidArgument) << text;
  }
  for (const std::string_view text : {"null", "[]", "1", "\"schema\""}) {
    EXPECT_THROW(parse_limits(text), InvalidArgument) << text;
  }
}

TEST(ParseLimits, RefusesEveryTruncation) {
  std::string text = format_limits({example()});
  text.erase(text.find_last_not_of("\n ") + 1);
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_THROW(parse_limits(text.substr(0, length)), InvalidArgument) << length;
  }
}

TEST(ParseLimits, SurvivesDeepNesting) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THROW(parse_limits(deep), InvalidArgument);
  EXPECT_THROW(parse_limits("{\"schema\":1,\"entries\":" + deep + "}"), InvalidArgument);
}

TEST(ParseLimits, NeverFailsInAnotherWay) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string good = format_limits({example()});
  const auto upto = [&](std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(0, most)(random);
  };
  for (int i = 0; i < 5000; ++i) {
    std::string text = good;
    for (std::size_t changes = 1 + upto(3); changes > 0; --changes) {
      const std::size_t at = upto(text.size() - 1);
      switch (upto(2)) {
        case 0:
          text[at] = static_cast<char>(upto(255));
          break;
        case 1:
          text.erase(at, 1 + upto(8));
          break;
        default:
          text.insert(at, text.substr(upto(text.size() - 1), 1 + upto(20)));
      }
    }
    try {
      for (const Limits& limits : parse_limits(text)) {
        for (const auto& [ceiling, rate] : limits.rates) EXPECT_GT(rate.bytes_per_second, 0);
      }
    } catch (const InvalidArgument&) {
    }
  }
}

}  // namespace
}  // namespace ps
