// SPDX-License-Identifier: Apache-2.0
// What is wrong with a command line, in the words of a person. CLI11 finds it and words it for
// programmers.
#pragma once

#include <string>

namespace nanwatch {

// `complaint` is the text of a CLI::ParseError; one that is not known comes back as it is.
[[nodiscard]] std::string PlainComplaint(const std::string& complaint);

}  // namespace nanwatch
