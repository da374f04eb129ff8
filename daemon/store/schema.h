// SPDX-License-Identifier: Apache-2.0
// The database's schema as text, compiled in.
#pragma once

namespace nanwatch {

inline constexpr int kSchemaVersion = 4;
inline constexpr int kApplicationId = 0x4e414e57;  // "NANW": what `file` and sqlite3_analyzer show

extern const char* const kSchema;                          // the newest version
extern const char* const kMigrations[kSchemaVersion - 1];  // [v - 1] leads from version v to v + 1

}  // namespace nanwatch
