// SPDX-License-Identifier: Apache-2.0
// Small files that others may read at any time: they find all of one or nothing.
#pragma once

#include <string>
#include <string_view>

namespace nanwatch {

// Writes `content` under another name first, `path` with a suffix that ends in ".tmp", for its
// owner alone, and replaces what is there. False: nothing was changed.
bool WriteWholeFile(const std::string& path, std::string_view content);

}  // namespace nanwatch
