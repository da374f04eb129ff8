// SPDX-License-Identifier: Apache-2.0
#include "shim/host/quiet_thread.h"

#include <pthread.h>

#include <initializer_list>

namespace nanwatch {

QuietSignals::QuietSignals() noexcept {
  sigset_t quiet;
  sigfillset(&quiet);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&quiet, fault);
  pthread_sigmask(SIG_SETMASK, &quiet, &before_);
}

QuietSignals::~QuietSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

bool StartQuietThread(void* (*run)(void* context), void* context) noexcept {
  const QuietSignals quiet;
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, run, context) != 0) return false;
  pthread_detach(thread);
  return true;
}

}  // namespace nanwatch
