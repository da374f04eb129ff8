// SPDX-License-Identifier: Apache-2.0
// Bad values that nobody followed. At level canary, and inside torch.func's transforms, a value is
// met where Python reads it, and what becomes of it is not seen. If the training went on, an update
// would have shown it. If no update followed, the program may have ended, or skipped every step,
// because of it.
#pragma once

#include "daemon/correlate/lineage.h"

namespace nanwatch {

// Whether the run ended so. Masks (-Inf alone, constants) do not count.
[[nodiscard]] bool EndedUnfollowed(const Lineage& run);

}  // namespace nanwatch
