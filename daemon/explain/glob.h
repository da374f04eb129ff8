// SPDX-License-Identifier: Apache-2.0
// Patterns of text as people write them: `*` is any text, everything else is itself.
#pragma once

#include <string_view>

namespace nanwatch {

// At most |glob| * |text| steps whatever the glob: users write them too.
[[nodiscard]] bool MatchesGlob(std::string_view glob, std::string_view text);

}  // namespace nanwatch
