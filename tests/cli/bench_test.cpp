// penstock bench: who is started, with which words, and what is said where nobody can be.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "penstock.h"

namespace ps::test {
namespace {

namespace fs = std::filesystem;

// A program that stands for Python; run() finds it under its name, and nothing else.
class Stand {
 public:
  Stand(const std::string& name, const std::string& script) : folder_(penstock_.here().path()) {
    const fs::path file = penstock_.here().write("bin/" + name, "#!/bin/sh\n" + script);
    fs::permissions(file, fs::perms::owner_all);
  }

  ChildOptions options(std::vector<std::string> words) const {
    words.insert(words.begin(), "bench");
    ChildOptions options = penstock_.options(std::move(words));
    options.environment.emplace_back("PATH", (folder_ / "bin").string());
    options.environment.emplace_back("PENSTOCK_PYTHON", "");
    return options;
  }

 private:
  Penstock penstock_;
  fs::path folder_;
};

const char* const tells = R"(if [ "$1" = -c ]; then exit 0; fi
for word in "$@"; do echo "<$word>"; done
exit 7
)";

TEST(BenchCommand, HandsItsWordsOnInOrder) {
  const Stand stand("python3", tells);
  const Ended ended =
      run(stand.options({"iterate", "--mode", "ncu", "--help", "--kernel", "a b", "report"}));
  EXPECT_EQ(ended.code, 7) << ended.err;
  EXPECT_EQ(ended.out,
            "<-m>\n<penstock.bench>\n<iterate>\n<--mode>\n<ncu>\n<--help>\n<--kernel>\n<a b>\n"
            "<report>\n");
  EXPECT_EQ(run(stand.options({"report"})).out, "<-m>\n<penstock.bench>\n<report>\n");
  EXPECT_EQ(run(stand.options({"--list", "--json"})).out,
            "<-m>\n<penstock.bench>\n<--list>\n<--json>\n");
}

TEST(BenchCommand, UsesThePythonItIsTold) {
  const Stand stand("snake", tells);
  ChildOptions options = stand.options({"iterate"});
  options.environment.back().second = "snake";
  EXPECT_EQ(run(options).out, "<-m>\n<penstock.bench>\n<iterate>\n");
}

TEST(BenchCommand, SaysWhatToInstall) {
  const Ended no_python = run(Stand("other", tells).options({"iterate"}));
  EXPECT_EQ(no_python.code, 1) << no_python.err;
  EXPECT_NE(no_python.err.find("python3"), std::string::npos) << no_python.err;
  EXPECT_NE(no_python.err.find("PENSTOCK_PYTHON"), std::string::npos) << no_python.err;

  const Ended no_package = run(Stand("python3", "exit 3\n").options({"iterate"}));
  EXPECT_EQ(no_package.code, 1) << no_package.err;
  EXPECT_NE(no_package.err.find("pip install"), std::string::npos) << no_package.err;
}

TEST(BenchCommand, ItsSignalsGoToWhoFollows) {
  const Stand stand("python3", "[ \"$1\" = -c ] || kill -TERM $$\n");
  EXPECT_EQ(run(stand.options({"iterate"})).signal, SIGTERM);
}

}  // namespace
}  // namespace ps::test
