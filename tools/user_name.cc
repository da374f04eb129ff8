// SPDX-License-Identifier: Apache-2.0
#include "tools/user_name.h"

#include <pwd.h>

#include <cstdio>
#include <memory>

namespace nanwatch {

std::string UserName(uid_t uid) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen("/etc/passwd", "re"), &fclose);
  if (file == nullptr) return "";
  while (const passwd* entry = fgetpwent(file.get())) {
    if (entry->pw_uid == uid) return entry->pw_name;
  }
  return "";
}

}  // namespace nanwatch
