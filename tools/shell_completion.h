// SPDX-License-Identifier: Apache-2.0
// Completion of the command line in a shell, made from the command line's own definition.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace nanwatch {

enum class Shell { kBash, kZsh, kFish };

// A script for the shell to read. `app` has all its verbs.
[[nodiscard]] std::string CompletionScript(const CLI::App& app, Shell shell);

}  // namespace nanwatch
