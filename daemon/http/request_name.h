// SPDX-License-Identifier: Apache-2.0
// A header that ties an answer to its request: a client gives each request a name, and our server
// sends it back. An answer to an earlier request that comes once more, by a proxy or a balancer that
// mixes connections up, does not pass for the answer to what was asked now.
#pragma once

#include <cstddef>

namespace nanwatch {

inline constexpr char kRequestNameHeader[] = "nanwatch-request";  // lower case
inline constexpr size_t kRequestNameBytesMax = 64;

}  // namespace nanwatch
