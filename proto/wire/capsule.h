// SPDX-License-Identifier: Apache-2.0
// A capsule: the folder that holds what is needed to run an origin's op again. The job writes it,
// the tools complete it (proto/README.md has the format).
#pragma once

namespace nanwatch::wire {

inline constexpr char kEnvCapsule[] = "NANWATCH_CAPSULE";             // "off" or "op"
inline constexpr char kEnvCapsuleDir[] = "NANWATCH_CAPSULE_DIR";      // where they are written
inline constexpr char kEnvCapsuleLimit[] = "NANWATCH_CAPSULE_LIMIT";  // bytes of one

// A folder is called RUN-N, RUN as the run's id and N from 1. While the job writes it it is called
// RUN-N.partial, and RUN-N.written until a tool has added checksums and the program that runs it.
inline constexpr char kCapsulePartial[] = ".partial";
inline constexpr char kCapsuleWritten[] = ".written";

inline constexpr char kCapsuleSchema[] = "nanwatch.capsule/1";
inline constexpr char kCapsuleManifest[] = "manifest.json";
inline constexpr char kCapsuleTensors[] = "tensors.safetensors";

inline constexpr unsigned long long kCapsuleBytesMax = 64ull << 20;
inline constexpr int kCapsulesMax = 4;  // of a process

}  // namespace nanwatch::wire
