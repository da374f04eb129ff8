// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/until_signal.h"

#include <pthread.h>

#include <thread>

namespace nanwatch {

sigset_t BlockEndingSignals() {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&ending, signal);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  return ending;
}

void ServeUntilSignal(HttpServer& server, const sigset_t& ending,
                      const std::function<void()>& on_signal) {
  std::thread waiter([&] {
    int signal = 0;
    sigwait(&ending, &signal);
    if (on_signal) on_signal();
    server.Stop();
  });
  server.Serve();
  pthread_kill(waiter.native_handle(), SIGUSR1);  // where it ended by itself
  waiter.join();
}

}  // namespace nanwatch
