// A test program that crashes says where: machines that run these tests may have no debugger. The
// addresses are for addr2line.
#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace {

int frames_of(std::array<void*, 64>& frames) {
  return backtrace(frames.data(), static_cast<int>(frames.size()));
}

extern "C" void report_crash(int signal) {
  std::array<void*, 64> frames{};
  backtrace_symbols_fd(frames.data(), frames_of(frames), STDERR_FILENO);
  std::raise(signal);  // ends the process: the handler is for one signal
}

const bool installed = [] {
  // The first call loads a library, which a handler must not do.
  std::array<void*, 64> frames{};
  frames_of(frames);
  struct sigaction action{};
  action.sa_handler = report_crash;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal, &action, nullptr);
  return true;
}();

}  // namespace
