// SPDX-License-Identifier: Apache-2.0
// Whether TorchScript runs on this thread. Its interpreter hands arguments over: an op's inputs may
// be gone when the op ends, where all other callers keep them.
#pragma once

namespace nanwatch {

// Allocates: not for the path of a clean op. True where it cannot be found out.
[[nodiscard]] bool IsInScript() noexcept;

}  // namespace nanwatch
