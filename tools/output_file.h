// SPDX-License-Identifier: Apache-2.0
// A file that somebody asked for: a page, an export. It is written beside its name and renamed, so
// that a reader finds the old one or the new one, and a failure leaves nothing behind.
#pragma once

#include <string>
#include <string_view>

#include "daemon/base/status.h"

namespace nanwatch {

// "-" is stdout; pipes and devices are written to as they are. The message of a failure names the
// path and says what to do.
[[nodiscard]] Status WriteOutputFile(const std::string& path, std::string_view content);

}  // namespace nanwatch
