// SPDX-License-Identifier: Apache-2.0
// Names of users, as /etc/passwd has them. Not by getpwuid(3): it loads libraries of the host's
// glibc, which a program that is linked statically must not do.
#pragma once

#include <sys/types.h>

#include <string>

namespace nanwatch {

// "" when the file does not name the user, as on hosts that keep users in a directory service.
[[nodiscard]] std::string UserName(uid_t uid);

}  // namespace nanwatch
