// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/glob.h"

#include <cstddef>

namespace nanwatch {

// Only the latest `*` is ever reconsidered: what an earlier one took can stay as short as it was,
// because the latest can take the rest.
bool MatchesGlob(std::string_view glob, std::string_view text) {
  size_t in_glob = 0;
  size_t in_text = 0;
  size_t behind_star = std::string_view::npos;
  size_t star_ends = 0;
  while (in_text < text.size()) {
    if (in_glob < glob.size() && glob[in_glob] == '*') {
      behind_star = ++in_glob;
      star_ends = in_text;
    } else if (in_glob < glob.size() && glob[in_glob] == text[in_text]) {
      ++in_glob;
      ++in_text;
    } else if (behind_star != std::string_view::npos) {
      in_glob = behind_star;
      in_text = ++star_ends;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', in_glob) == std::string_view::npos;
}

}  // namespace nanwatch
