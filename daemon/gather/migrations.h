// SPDX-License-Identifier: Apache-2.0
// The fleet database's schema as text, compiled in: one script a version.
#pragma once

namespace nanwatch {

inline constexpr int kFleetSchemaVersion = 5;
extern const char* const
    kFleetMigrations[kFleetSchemaVersion];  // [v] leads from version v to v + 1

}  // namespace nanwatch
