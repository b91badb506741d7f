#include "support/expect_clean.h"

#include <chrono>
#include <thread>

namespace ps::test {
namespace {

testing::AssertionResult check(const FakeDriver& driver, bool lost) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (driver.outstanding() != Outstanding{} && driver.violations().empty() &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  testing::AssertionResult result = testing::AssertionFailure();
  bool clean = true;
  for (const std::string& violation : driver.violations()) {
    clean = false;
    result << "violation: " << violation << "\n";
  }
  if (const Outstanding left = driver.outstanding(); left != Outstanding{}) {
    clean = false;
    result << "outstanding: " << left << "\n";
  }
  if (!lost) {
    for (const cuda::Status status : driver.uncleared_errors()) {
      clean = false;
      result << "an error was not cleared: " << status << "\n";
    }
  }
  return clean ? testing::AssertionSuccess() : result;
}

}  // namespace

testing::AssertionResult is_clean(const FakeDriver& driver) { return check(driver, false); }

testing::AssertionResult is_clean_after_loss(const FakeDriver& driver) {
  return check(driver, true);
}

testing::AssertionResult only_violation(const FakeDriver& driver, std::string_view text) {
  const auto violations = driver.violations();
  if (violations.size() == 1 && violations.front().find(text) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  testing::AssertionResult result = testing::AssertionFailure();
  result << "expected one violation with \"" << text << "\", got " << violations.size();
  for (const std::string& violation : violations) result << "\n  " << violation;
  return result;
}

}  // namespace ps::test
