#include "options.h"

#include <gtest/gtest.h>

#include "penstock/base/units.h"

namespace ps::cli {
namespace {

std::size_t bytes_from(const std::string& text) {
  CLI::App app;
  std::size_t bytes = 7;
  add_bytes_option(app, "--chunk", bytes, "help");
  app.parse("--chunk " + text);
  return bytes;
}

TEST(Options, ReadSizes) {
  EXPECT_EQ(bytes_from("64MiB"), 64 * MiB);
  EXPECT_EQ(bytes_from("4096"), 4096u);
  for (const char* bad : {"0", "-1", "lots", "1e30", "99999999999999999999"}) {
    EXPECT_THROW(bytes_from(bad), CLI::ValidationError) << bad;
  }
}

TEST(Options, CheckDevicesAtTheDoor) {
  const auto device_from = [](const std::string& text) {
    CLI::App app;
    std::string device = "best";
    add_device_option(app, device);
    app.parse("--device " + text);
    return device;
  };
  EXPECT_EQ(device_from("cpu"), "cpu");
  for (const char* bad : {"tpu", "cuda:9999", "cuda:-1", "cuda:x"}) {
    EXPECT_THROW(device_from(bad), CLI::ValidationError) << bad;
  }
}

}  // namespace
}  // namespace ps::cli
