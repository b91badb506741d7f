// The built program, with a cache of its own.
#pragma once

#include "support/child.h"
#include "support/temporary_directory.h"

namespace ps::test {

// Runs `penstock` in an empty directory, away from the user's cache.
class Penstock {
 public:
  ChildOptions options(std::vector<std::string> arguments) const {
    ChildOptions options;
    options.program = beside_this_program("penstock");
    options.arguments = std::move(arguments);
    options.environment = {{"PENSTOCK_CACHE", cache().string()}, {"TERM", "xterm"}};
    options.directory = here_.path();
    return options;
  }

  Ended operator()(std::vector<std::string> arguments) const {
    return run(options(std::move(arguments)));
  }

  const TemporaryDirectory& here() const { return here_; }
  std::filesystem::path cache() const { return cache_.path(); }
  std::filesystem::path cache_file() const { return cache_.path() / "limits.json"; }

 private:
  TemporaryDirectory here_, cache_;
};

}  // namespace ps::test
