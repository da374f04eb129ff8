// SPDX-License-Identifier: Apache-2.0
// The database as a file: brought to the current schema when it is opened, moved aside when it is
// damaged.
#pragma once

#include <string>

#include "daemon/base/status.h"
#include "daemon/store/sqlite.h"
#include "daemon/store/store.h"

namespace nanwatch {

struct OpenedDatabase {
  Database database;
  std::string note;  // what had to be done, a sentence for the user; empty when nothing
};

[[nodiscard]] Result<OpenedDatabase> OpenDatabaseForWriting(const std::string& path,
                                                            Store::WhenDamaged when_damaged);
[[nodiscard]] Result<OpenedDatabase> OpenDatabaseForReading(const std::string& path);

}  // namespace nanwatch
