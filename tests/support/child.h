// Runs a built program and keeps what it said.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace ps::test {

struct Ended {
  int code = -1;   // exit code; -1 when a signal ended it
  int signal = 0;  // that ended it; 0 when none did
  std::string out, err;
};

struct ChildOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments{};
  std::vector<std::pair<std::string, std::string>> environment{};  // beside this process's own
  std::filesystem::path directory{};  // to run in; empty: this process's
  std::string out{};                  // a file for standard output, instead of keeping it
  bool terminal = false;              // standard error is a terminal
  bool ignores_interrupt = false;     // started as a shell starts a background job
};

// A program that is running. What it writes never makes it wait.
class Child {
 public:
  explicit Child(const ChildOptions& options);
  ~Child();  // kills it if it still runs
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void signal(int number) const;
  bool running();

  // Waits until it has ended; after `limit` kills it, and the test fails.
  Ended wait(std::chrono::seconds limit = std::chrono::seconds(60));

 private:
  bool reap();

  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
  int out_ = -1, err_ = -1;
  int terminal_ = -1;
  std::thread reader_;  // of the terminal
  std::string drawn_;
};

Ended run(const ChildOptions& options);

// Runs this program again, with one of its disabled tests: "Suite.DISABLED_Test".
Ended run_disabled_test(const std::string& test);

// The file of this name beside the running test program.
std::filesystem::path beside_this_program(std::string_view name);

}  // namespace ps::test
