// SPDX-License-Identifier: Apache-2.0
// Reads the command line of `nanwatch` and runs the verb that it names.
#pragma once

namespace nanwatch {

// The value is the exit code.
int Dispatch(int argc, char** argv);

}  // namespace nanwatch
