// A project outside the tree that knows only the installed package.
#include <penstock/version.h>

#include <cstdio>

int main() {
  std::printf("Penstock %s\n", PENSTOCK_VERSION);
  return PENSTOCK_VERSION_MAJOR == 0 && PENSTOCK_VERSION_MINOR == 1 ? 0 : 1;
}
