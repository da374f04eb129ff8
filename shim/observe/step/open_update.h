// SPDX-License-Identifier: Apache-2.0
// What is known of the update that runs on this thread, from where its optimizer's step began.
#pragma once

namespace nanwatch {

// Whether every gradient was read and is finite, and so are the rates and the like of the
// optimizer. False: there is no update, or not all is known.
[[nodiscard]] bool OpenUpdateIsGivenFinite() noexcept;

}  // namespace nanwatch
