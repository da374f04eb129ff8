// SPDX-License-Identifier: Apache-2.0
// The directory that segments lie in: found, made, and refused if somebody else could reach into
// it.
#pragma once

#include "proto/wire/naming.h"
#include "shim/host/segment_report.h"

namespace nanwatch {

// Opens the directory (close-on-exec; the caller closes it) and writes its absolute path to `path`.
// `wanted` is taken before NANWATCH_DIR, that before the default directory of the user and the
// place (proto/wire/place.h). Missing, it is made with mode 0700, its parents are not. -1, with the
// reason in `report`, if it cannot be made, is no directory or a symbolic link, belongs to another
// user, is writable by others, or has a path longer than kDirPathMax.
[[nodiscard]] int OpenSegmentDirectory(const char* wanted, char (&path)[wire::kDirPathMax + 1],
                                       SegmentReport& report) noexcept;

}  // namespace nanwatch
