// SPDX-License-Identifier: Apache-2.0
#include <csignal>

#include "tools/dispatch.h"

namespace {

// A file that grows beyond RLIMIT_FSIZE would end us by a signal; with a handler the write fails.
// Commands that we start have what we were started with: a handler does not survive exec.
void FailInstead(int /*signal*/) {}

}  // namespace

int main(int argc, char** argv) {
  if (std::signal(SIGXFSZ, &FailInstead) == SIG_IGN) std::signal(SIGXFSZ, SIG_IGN);
  return nanwatch::Dispatch(argc, argv);
}
