// SPDX-License-Identifier: Apache-2.0
// Opens a daemon's database as its options say: with a limit, and with an outbox.
#pragma once

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/loop/daemon.h"
#include "daemon/store/store.h"

namespace nanwatch {

// Where the outbox fails the database is opened without one, and `listener` hears of it.
[[nodiscard]] Result<Store> OpenStore(const DaemonOptions& options, Store::WhenDamaged when_damaged,
                                      const Clock& clock, Listener& listener);

}  // namespace nanwatch
