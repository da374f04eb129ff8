// SPDX-License-Identifier: Apache-2.0
// A server that runs until SIGINT, SIGTERM or SIGHUP.
#pragma once

#include <signal.h>

#include "daemon/http/http_server.h"

namespace nanwatch {

// Blocks what ends it, in this thread and those that it starts from now on.
[[nodiscard]] sigset_t BlockEndingSignals();

// Serves until one of these arrives.
void ServeUntilSignal(HttpServer& server, const sigset_t& ending);

}  // namespace nanwatch
