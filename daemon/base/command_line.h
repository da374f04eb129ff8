// SPDX-License-Identifier: Apache-2.0
// Says for users what is wrong with a command line. CLI11's own messages are for programmers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nanwatch {

// `complaint` is the text of a CLI::ParseError; one that is not known comes back as it is.
[[nodiscard]] std::string PlainComplaint(const std::string& complaint);

// The word of `words` that `typed` most likely means, "" if none is close.
[[nodiscard]] std::string NearestWord(std::string_view typed,
                                      const std::vector<std::string>& words);

}  // namespace nanwatch
