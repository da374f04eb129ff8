// SPDX-License-Identifier: Apache-2.0
// What a job has written becomes a capsule: checksums, the program that runs it again, on the disk.
// A job has no time for that.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "tools/capsule/capsule.h"

namespace nanwatch {

// Completes all that jobs have written in `directory`, one tool at a time, and removes what they
// did not write to its end. What could not be done, a sentence each. Does nothing where there is no
// such directory.
std::vector<std::string> CompleteCapsules(const std::string& directory);

// Whether the tensors are those that the manifest names; kCorrupt says what is wrong.
[[nodiscard]] Status VerifyCapsule(const Capsule& capsule);

// Of a file, in hexadecimal digits; "" where it cannot be read.
[[nodiscard]] std::string Sha256Of(const std::string& path);

// repro_op.py.
extern const char* const kReproProgram;

}  // namespace nanwatch
