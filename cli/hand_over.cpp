#include "hand_over.h"

#include <unistd.h>

#include <csignal>

namespace ps::cli {

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

void give_signals_back() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR2}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void replace_program(std::vector<std::string> words) {
  execvp(words.front().c_str(), pointers(words).data());
}

}  // namespace ps::cli
