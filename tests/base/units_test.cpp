#include "penstock/base/units.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace {

TEST(Units, FormatsForPeople) {
  EXPECT_EQ(ps::format_bytes(0), "0 B");
  EXPECT_EQ(ps::format_bytes(12), "12 B");
  EXPECT_EQ(ps::format_bytes(256 * ps::MiB), "256 MiB");
  EXPECT_EQ(ps::format_bytes(3 * ps::GiB / 2), "1.5 GiB");
  EXPECT_EQ(ps::format_seconds(0.03875), "38.75 ms");
  EXPECT_EQ(ps::format_seconds(0), "0 ns");
  EXPECT_EQ(ps::format_rate(55.2e9), "55.2 GB/s");
  EXPECT_EQ(ps::format_rate(4.22e12), "4.22 TB/s");
}

TEST(Units, ReadsSizes) {
  EXPECT_EQ(ps::parse_bytes("4096", "x"), 4096U);
  EXPECT_EQ(ps::parse_bytes("64k", "x"), 64 * ps::KiB);
  EXPECT_EQ(ps::parse_bytes("64 KiB", "x"), 64 * ps::KiB);
  EXPECT_EQ(ps::parse_bytes("16M", "x"), 16 * ps::MiB);
  EXPECT_EQ(ps::parse_bytes("16MB", "x"), 16 * ps::MiB);
  EXPECT_EQ(ps::parse_bytes(" 1.5GiB ", "x"), 3 * ps::GiB / 2);
  EXPECT_EQ(ps::parse_bytes("0", "x", true), 0U);
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* text : {"", " ", "0", "-1", "1e99", "nan", "inf", "12x", "1.3", "KiB", "1 2",
                           "16 Mi MiB", "99999999999T", "0x10", "1..5k"}) {
    try {
      ps::parse_bytes(text, "--chunk");
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const ps::InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "--chunk");
    }
  }
}

}  // namespace
