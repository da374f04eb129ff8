// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/status.h"

#include <cerrno>
#include <cstring>

namespace nanwatch {
namespace {

ErrorKind KindOf(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return ErrorKind::kFull;
    case ENOENT:
      return ErrorKind::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorKind::kPermission;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
      return ErrorKind::kResources;
    default:
      return ErrorKind::kIo;
  }
}

}  // namespace

Status Status::FromErrno(int error, std::string_view what) {
  return Status(KindOf(error), std::string(what) + ": " + std::strerror(error));
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  return Status(kind_, std::string(context) + ": " + message_);
}

}  // namespace nanwatch
