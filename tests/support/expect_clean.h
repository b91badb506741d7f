// What a test asks of a fake driver when it is done with it.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "fake/fake_driver.h"

namespace ps::test {

// No violation, nothing outstanding, no error left for the user to find. Threads of the library may
// still be dropping what they hold: this waits for them, within reason.
testing::AssertionResult is_clean(const FakeDriver& driver);

// As is_clean(), but the device was lost: errors stay, since they are sticky.
testing::AssertionResult is_clean_after_loss(const FakeDriver& driver);

// Exactly one violation, which contains `text`.
testing::AssertionResult only_violation(const FakeDriver& driver, std::string_view text);

}  // namespace ps::test
