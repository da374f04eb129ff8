// SPDX-License-Identifier: Apache-2.0
// The folder of a capsule (proto/wire/capsule.h), written so that whoever finds it under its name
// finds all of it: the process may be killed at any time, the disk may be full. Nothing is synced
// to the disk: that would hold up the job, and is left to the tools.
//
// Any thread; nothing throws or raises a signal; allocates nothing; keeps errno.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace nanwatch {

struct CapsuleContent {
  std::span<const iovec> tensors;  // in this order
  std::string_view manifest;
};

// Writes NAME.partial in `directory`, which is made if it is missing (0700), and calls it
// NAME.written when it is whole. Null: done. Else why not, for a person; nothing is left then.
[[nodiscard]] const char* WriteCapsule(const char* directory, const char* name,
                                       const CapsuleContent& content) noexcept;

// Removes NAME.written. A tool that has taken it over keeps it.
void RemoveCapsule(const char* directory, const char* name) noexcept;

}  // namespace nanwatch
