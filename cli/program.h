// What a command is given, and how it joins the program.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stop_token>
#include <utility>

namespace ps::cli {

class Program {
 public:
  Program(CLI::App& app, std::stop_token stop) : app_(app), stop_(std::move(stop)) {}

  CLI::App& app() { return app_; }

  // Triggered by the first Ctrl-C; a command passes it to whatever takes long.
  const std::stop_token& stop() const { return stop_; }

  // What to do once the whole command line was understood.
  void chosen(std::function<void()> run) { run_ = std::move(run); }
  void run() const { run_(); }

 private:
  CLI::App& app_;
  std::stop_token stop_;
  std::function<void()> run_;
};

}  // namespace ps::cli
