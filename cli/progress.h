// One line that says how far a command has come, on a terminal only.
#pragma once

#include <chrono>
#include <string_view>

namespace ps::cli {

class ProgressBar {
 public:
  // Draws on standard error if that is a terminal; does nothing otherwise.
  ProgressBar();
  ~ProgressBar();  // wipes the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(double fraction, std::string_view label);

 private:
  bool active_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace ps::cli
