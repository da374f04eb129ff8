// SPDX-License-Identifier: Apache-2.0
// The line of the user's program that an origin names, with its neighbors. Reads files; nothing in
// one is trusted.
#pragma once

#include <optional>

#include "daemon/report/page/page_document.h"
#include "verdict.pb.h"

namespace nanwatch {

// Records name a file without its directory, so it is searched where the run's script is. Nothing
// where it is not found, where it was changed after the run began, where it is no Python file, or
// where the function that the record names does not hold that line.
[[nodiscard]] std::optional<SourceLines> SourceLinesOf(const Verdict& verdict);

// The whole path of that file; "" likewise.
[[nodiscard]] std::string SourcePathOf(const Verdict& verdict);

}  // namespace nanwatch
