#include "support/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <map>
#include <string_view>

namespace ps::test {
namespace {

namespace fs = std::filesystem;

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    all[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : changes) all[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : all) lines.push_back(name + "=" + value);
  return lines;
}

fs::path this_program() { return fs::read_symlink("/proc/self/exe"); }

std::string read_from_start(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  off_t at = 0;
  for (ssize_t got = 0; (got = pread(fd, buffer.data(), buffer.size(), at)) > 0; at += got) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

Child::Child(const ChildOptions& options) {
  // Everything that allocates comes before the fork: a forked copy of threads' locks is no use.
  std::vector<std::string> arguments = options.arguments;
  arguments.insert(arguments.begin(), options.program.string());
  std::vector<std::string> environment = environment_with(options.environment);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  const std::string directory = options.directory.string();

  out_ = options.out.empty() ? memfd_create("out", MFD_CLOEXEC)
                             : open(options.out.c_str(), O_WRONLY | O_CLOEXEC);
  if (options.terminal) {
    terminal_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    grantpt(terminal_);
    unlockpt(terminal_);
    err_ = open(ptsname(terminal_), O_RDWR | O_NOCTTY | O_CLOEXEC);
  } else {
    err_ = memfd_create("err", MFD_CLOEXEC);
  }

  pid_ = fork();
  if (pid_ == 0) {
    std::signal(SIGINT, options.ignores_interrupt ? SIG_IGN : SIG_DFL);
    std::signal(SIGXFSZ, SIG_DFL);
    if (dup2(out_, STDOUT_FILENO) < 0 || dup2(err_, STDERR_FILENO) < 0) _exit(126);
    if (!directory.empty() && chdir(directory.c_str()) != 0) _exit(126);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  if (terminal_ >= 0) {
    close(err_);
    err_ = -1;
    reader_ = std::thread([this] {
      std::array<char, 4096> buffer;
      for (ssize_t got = 0; (got = read(terminal_, buffer.data(), buffer.size())) > 0;) {
        drawn_.append(buffer.data(), static_cast<std::size_t>(got));
      }
    });
  }
}

Child::~Child() {
  if (!ended_ && pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
  }
  if (reader_.joinable()) reader_.join();
  for (const int fd : {out_, err_, terminal_}) {
    if (fd >= 0) close(fd);
  }
}

void Child::signal(int number) const { kill(pid_, number); }

bool Child::reap() {
  if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return ended_;
}

bool Child::running() { return !reap(); }

Ended Child::wait(std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!reap()) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "the program did not end within " << limit.count() << " s";
      kill(pid_, SIGKILL);
      waitpid(pid_, &status_, 0);
      ended_ = true;
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (reader_.joinable()) reader_.join();
  Ended result;
  if (WIFEXITED(status_)) result.code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) result.signal = WTERMSIG(status_);
  result.out = read_from_start(out_);
  result.err = terminal_ >= 0 ? drawn_ : read_from_start(err_);
  return result;
}

Ended run(const ChildOptions& options) { return Child(options).wait(); }

Ended run_disabled_test(const std::string& test) {
  return run({.program = this_program(),
              .arguments = {"--gtest_also_run_disabled_tests", "--gtest_filter=" + test},
              .environment = {{"GTEST_TOTAL_SHARDS", "1"},  // all of this filter
                              {"GTEST_SHARD_INDEX", "0"}}});
}

fs::path beside_this_program(std::string_view name) { return this_program().parent_path() / name; }

}  // namespace ps::test
