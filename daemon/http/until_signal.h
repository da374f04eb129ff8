// SPDX-License-Identifier: Apache-2.0
// A server that runs until SIGINT, SIGTERM or SIGHUP.
#pragma once

#include <signal.h>

#include <functional>

#include "daemon/http/http_server.h"

namespace nanwatch {

// Blocks what ends it, in this thread and those that it starts from now on.
[[nodiscard]] sigset_t BlockEndingSignals();

// Serves until one of these arrives. `on_signal` is called then, before the server is stopped: what
// answers wait for has to end, too.
void ServeUntilSignal(HttpServer& server, const sigset_t& ending,
                      const std::function<void()>& on_signal = {});

}  // namespace nanwatch
