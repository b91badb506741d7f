// The second Ctrl-C, for a command that does not listen to the first.
#include "interrupt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

namespace ps::cli {
namespace {

using namespace std::chrono_literals;

bool wait_for_stop(const std::stop_token& token) {
  for (int i = 0; i < 2000 && !token.stop_requested(); ++i) std::this_thread::sleep_for(5ms);
  return token.stop_requested();
}

TEST(Interrupt, TheFirstSignalAsksToStop) {
  const Interrupt interrupt;
  EXPECT_FALSE(interrupt.token().stop_requested());
  kill(getpid(), SIGINT);
  EXPECT_TRUE(wait_for_stop(interrupt.token()));
}

TEST(Interrupt, PutsTheSignalMaskBack) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    const Interrupt interrupt;
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR2}) {
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal));
  }
}

TEST(InterruptDeathTest, TheSecondSignalKills) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const Interrupt interrupt;
        kill(getpid(), SIGINT);
        wait_for_stop(interrupt.token());
        kill(getpid(), SIGINT);
        std::this_thread::sleep_for(30s);
      },
      testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace ps::cli
