#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace ps::cli {
namespace {

constexpr std::size_t width = 30;

bool can_draw() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace

ProgressBar::ProgressBar() : active_(can_draw()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::update(double fraction, std::string_view label) {
  using namespace std::chrono_literals;
  const auto now = std::chrono::steady_clock::now();
  if (!active_ || now < next_) return;
  next_ = now + 100ms;
  drawn_ = true;
  const double share = std::clamp(fraction, 0.0, 1.0);
  const auto filled = static_cast<std::size_t>(share * width);
  const std::string line = fmt::format("\r\033[K[{}{}] {:3.0f}%  {}", std::string(filled, '#'),
                                       std::string(width - filled, '.'), 100 * share, label);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace ps::cli
