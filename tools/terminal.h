// SPDX-License-Identifier: Apache-2.0
// What the user can see: whether a stream is a terminal, and whether it shows colors.
#pragma once

#include <string>
#include <string_view>

namespace nanwatch {

// True if file descriptor `fd` is a terminal that shows colors, unless the user wants none
// (NO_COLOR, a non-empty value; TERM=dumb).
[[nodiscard]] bool WantsColor(int fd);

// True when the locale of this process (LC_ALL, LC_CTYPE, LANG) is one of UTF-8. Whether it is
// installed does not matter: it is the terminal that draws the characters.
[[nodiscard]] bool WantsUnicode();

// Writes all of `text` to `fd`; false when it could not be (a closed pipe, a full disk).
bool WriteAll(int fd, std::string_view text);

// Why a write failed with `error`, and what to do about it when it was to stdout.
[[nodiscard]] std::string WhyNotWritten(int error);

// After a failed write to stdout: says why and gives kExitFailed; `exit_code` where the reader has
// gone, which is no failure.
[[nodiscard]] int NotWritten(int exit_code);

// The end of a verb that prints to stdout: writes `text` and gives `exit_code`, or says why it
// could not be written and gives kExitFailed. A reader that has gone is no failure.
[[nodiscard]] int PrintAndExit(std::string_view text, int exit_code);

// The columns that a report has on `fd`: the terminal's, from 60 to 120; 100 on anything else.
[[nodiscard]] int ReportColumns(int fd);

// One line of our own on stderr, "nanwatch: " before it. One write, so that lines of several
// processes do not mix.
void Say(std::string_view line);

}  // namespace nanwatch
