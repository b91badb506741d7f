#include "penstock/base/text_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>

#include "penstock/base/error.h"
#include "support/full_disk.h"
#include "support/temporary_directory.h"

namespace ps {
namespace {

using test::TemporaryDirectory;

int errno_of(const auto& call) {
  try {
    call();
  } catch (const SystemError& error) {
    return error.code().value();
  }
  return 0;
}

TEST(TextFile, ComesBackAsItWasWritten) {
  const TemporaryDirectory here;
  const std::string text("line\n\0binary\xff", 13);
  write_text(here.path() / "a", text);
  EXPECT_EQ(read_text(here.path() / "a", 100), text);
  write_text(here.path() / "a", "");
  EXPECT_EQ(read_text(here.path() / "a", 0), "");
}

TEST(TextFile, WhatCannotBeReadIsNamed) {
  const TemporaryDirectory here;
  EXPECT_EQ(errno_of([&] { read_text(here.path() / "absent", 9); }), ENOENT);
  EXPECT_EQ(errno_of([&] { read_text(here.path(), 9); }), EISDIR);
  here.write("large", "0123456789");
  EXPECT_EQ(errno_of([&] { read_text(here.path() / "large", 9); }), EFBIG);
  ASSERT_EQ(mkfifo((here.path() / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_text(here.path() / "pipe", 9), "");  // and does not wait for a writer
}

TEST(TextFile, AWriteThatFailsLeavesTheOldFile) {
  const TemporaryDirectory here;
  here.write("a", "old");
  {
    const test::FileSizeLimit limit(4096);
    EXPECT_EQ(errno_of([&] { write_text(here.path() / "a", std::string(8192, 'x')); }), EFBIG);
  }
  EXPECT_EQ(read_text(here.path() / "a", 9), "old");
  std::filesystem::remove(here.path() / "a");
  EXPECT_TRUE(here.empty());
  EXPECT_EQ(errno_of([&] { write_text(here.path() / "no" / "such", "x"); }), ENOENT);
  std::filesystem::create_directory(here.path() / "folder");
  EXPECT_EQ(errno_of([&] { write_text(here.path() / "folder", "x"); }), EISDIR);
  std::filesystem::remove(here.path() / "folder");
  EXPECT_TRUE(here.empty());
}

}  // namespace
}  // namespace ps
