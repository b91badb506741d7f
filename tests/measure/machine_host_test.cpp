#include "measure/machine_host.h"

#include <gtest/gtest.h>

#include "penstock/base/units.h"
#include "support/temporary_directory.h"

namespace ps {
namespace {

using detail::read_host;
using test::TemporaryDirectory;

TEST(ReadHost, ReadsWhatTheFilesSay) {
  const TemporaryDirectory root;
  root.write("etc/os-release", "NAME=\"Some Linux\"\nPRETTY_NAME=\"Some Linux 7 (seven)\"\n");
  root.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU 9000 @ 3.0GHz\n");
  root.write("proc/meminfo",
             "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n"
             "HugePages_Total:      12\nHugePages_Free:        5\nHugepagesize:       2048 kB\n");
  root.write("proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
  root.write("proc/sys/kernel/io_uring_disabled", "2\n");
  root.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  root.write("sys/devices/system/node/node0/cpulist", "0-3\n");
  root.write("sys/devices/system/node/node1/cpulist", "4-7\n");
  root.write("sys/devices/system/node/possible", "0-1\n");
  root.write("sys/fs/cgroup/memory.max", "1073741824\n");
  root.write("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n");
  root.write("sys/bus/pci/devices/0000:3b:00.0/class", "0x030200\n");
  root.write("sys/bus/pci/devices/0000:3b:00.1/vendor", "0x10de\n");
  root.write("sys/bus/pci/devices/0000:3b:00.1/class", "0x040300\n");
  root.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x8086\n");
  root.write("sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n");

  const HostSystem host = read_host(root.path());
  EXPECT_EQ(host.os, "Some Linux 7 (seven)");
  EXPECT_EQ(host.cpu, "Fast CPU 9000 @ 3.0GHz");
  EXPECT_EQ(host.memory_bytes, 16 * GiB);
  EXPECT_EQ(host.available_bytes, 8 * GiB);
  EXPECT_EQ(host.memory_limit_bytes, 1 * GiB);
  EXPECT_EQ(host.huge_pages, 12u);
  EXPECT_EQ(host.huge_pages_free, 5u);
  EXPECT_EQ(host.huge_page_bytes, 2 * MiB);
  EXPECT_EQ(host.transparent_huge_pages, "madvise");
  EXPECT_TRUE(host.memlock_exempt);
  EXPECT_EQ(host.io_uring_disabled, 2);
  EXPECT_EQ(host.numa_nodes, 2);
  EXPECT_EQ(host.nvidia_functions, 1);
}

TEST(ReadHost, DoesWithoutAnyFile) {
  const TemporaryDirectory root;
  const HostSystem host = read_host(root.path());
  EXPECT_EQ(host.os, "");
  EXPECT_NE(host.cpu, "");  // at least the architecture
  EXPECT_GE(host.cores, 1);
  EXPECT_EQ(host.numa_nodes, 1);
  EXPECT_EQ(host.memory_bytes, 0u);
  EXPECT_FALSE(host.memory_limit_bytes.has_value());
  EXPECT_FALSE(host.memlock_exempt);
  EXPECT_FALSE(host.io_uring_disabled.has_value());
  EXPECT_EQ(host.transparent_huge_pages, "");
  EXPECT_EQ(host.nvidia_functions, 0);
}

TEST(ReadHost, DoesWithFilesThatMakeNoSense) {
  const TemporaryDirectory root;
  root.write("proc/meminfo", "MemTotal: lots\nMemAvailable:\nHugePages_Total: -3\n");
  root.write("proc/self/status", "CapEff:\tzz\n");
  root.write("proc/sys/kernel/io_uring_disabled", "\n");
  root.write("sys/kernel/mm/transparent_hugepage/enabled", "]always[\n");
  root.write("sys/fs/cgroup/memory.max", "max\n");
  root.write("sys/devices/system/node", "not a folder");
  const HostSystem host = read_host(root.path());
  EXPECT_EQ(host.memory_bytes, 0u);
  EXPECT_EQ(host.available_bytes, 0u);
  EXPECT_EQ(host.huge_pages, 0u);
  EXPECT_FALSE(host.memlock_exempt);
  EXPECT_FALSE(host.io_uring_disabled.has_value());
  EXPECT_EQ(host.transparent_huge_pages, "");
  EXPECT_FALSE(host.memory_limit_bytes.has_value());
  EXPECT_EQ(host.numa_nodes, 1);
}

TEST(ReadHost, ReadsThisMachine) {
  const HostSystem host = read_host();
  EXPECT_NE(host.kernel, "");
  EXPECT_GE(host.cores, 1);
  EXPECT_GT(host.memory_bytes, 0u);
  EXPECT_LE(host.available_bytes, host.memory_bytes);
}

}  // namespace
}  // namespace ps
