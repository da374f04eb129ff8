// SPDX-License-Identifier: Apache-2.0
// The database as a file: brought to the current schema when it is opened, moved aside when it is
// damaged.
#pragma once

#include <functional>
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

// Reads every page, by a connection of its own: seconds for a large database. kCorrupt where one
// of them makes no sense.
[[nodiscard]] Status CheckDatabase(const std::string& path);

// As rename(2).
using RenameFile = std::function<int(const char* from, const char* to)>;
// MoveAside of store.h. Where one file cannot be renamed, those that were get their names back.
[[nodiscard]] Result<std::string> MoveAsideBy(const std::string& path, const RenameFile& rename);

}  // namespace nanwatch
