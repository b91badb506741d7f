// What the system and control groups leave of the memory, read from files.
#include "host/available_memory.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "support/temporary_directory.h"

namespace ps::detail {
namespace {

class AvailableMemory : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    directory.write(file, text);
  }
  std::size_t available() const { return available_memory(directory.path()); }

  test::TemporaryDirectory directory;
};

TEST_F(AvailableMemory, WithoutFilesThereIsNoLimit) {
  EXPECT_EQ(available(), std::numeric_limits<std::size_t>::max());
  write("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: many kB\n");
  write("proc/self/cgroup", "nonsense\n0\n::\n0::/a/b\n");
  EXPECT_EQ(available(), std::numeric_limits<std::size_t>::max());
}

TEST_F(AvailableMemory, IsWhatTheSystemSays) {
  write("proc/meminfo", "MemTotal:      2000 kB\nMemFree:   10 kB\nMemAvailable:    1500 kB\n");
  EXPECT_EQ(available(), 1500U * 1024);
}

TEST_F(AvailableMemory, ALimitOfAnyGroupAboveHolds) {
  write("proc/meminfo", "MemAvailable: 1000000 kB\n");
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  write("sys/fs/cgroup/outer/inner/memory.current", "5000\n");
  write("sys/fs/cgroup/outer/memory.max", "100000\n");
  write("sys/fs/cgroup/outer/memory.current", "60000\n");
  EXPECT_EQ(available(), 40000U);
  write("sys/fs/cgroup/outer/memory.stat", "anon 30000\nactive_file 10000\ninactive_file 20000\n");
  EXPECT_EQ(available(), 70000U) << "cached files make room";
  write("sys/fs/cgroup/outer/memory.current", "200000\n");
  EXPECT_EQ(available(), 0U);
}

TEST_F(AvailableMemory, KnowsTheFirstVersionOfControlGroups) {
  write("proc/self/cgroup", "4:cpu:/x\n9:memory:/job\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "900\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "900\n");
  write("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 5\ntotal_inactive_file 300\n");
  EXPECT_EQ(available(), 400U);
}

TEST_F(AvailableMemory, ThisMachineHasSome) { EXPECT_GT(available_memory(), 1U << 20); }

}  // namespace
}  // namespace ps::detail
