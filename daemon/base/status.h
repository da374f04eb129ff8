// SPDX-License-Identifier: Apache-2.0
// How a function of the daemon or the tools says that it failed: a kind for code to branch on and a
// sentence for a person, to which each boundary adds what it was doing.
//
//   Result<Store> store = Store::OpenForReading(path);
//   if (!store.ok()) return store.status().WithContext("cannot show the report");
//
// Value types, no locking. Nothing here throws; asking a failed Result for its value is a
// programmer's error and stops the process by assert.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace nanwatch {

enum class ErrorKind : uint8_t {
  kNone = 0,
  kInvalid,      // the caller or the user asked for something that makes no sense
  kNotFound,     // no such file, run, job
  kAmbiguous,    // a prefix fits several
  kPermission,   // not ours, or not allowed
  kBusy,         // somebody else holds it
  kFull,         // no space left; may work later
  kResources,    // no memory, descriptor or thread left for us; may work later
  kCorrupt,      // contents contradict themselves
  kUnsupported,  // written by another version
  kIo,           // any other failure of the system
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}

  // The error of a system call: `what` failed with errno value `error`. ENOSPC and EDQUOT become
  // kFull, ENOENT kNotFound, EACCES and EPERM kPermission.
  static Status FromErrno(int error, std::string_view what);

  [[nodiscard]] bool ok() const { return kind_ == ErrorKind::kNone; }
  [[nodiscard]] ErrorKind kind() const { return kind_; }
  [[nodiscard]] const std::string& message() const { return message_; }

  // The same failure, with what was being done in front: "context: message". Success stays success.
  [[nodiscard]] Status WithContext(std::string_view context) const;

 private:
  ErrorKind kind_ = ErrorKind::kNone;
  std::string message_;
};

// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }  // NOLINT

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }

  [[nodiscard]] T& value() & {
    assert(ok());
    return *value_;
  }
  [[nodiscard]] const T& value() const& {
    assert(ok());
    return *value_;
  }
  [[nodiscard]] T&& value() && {
    assert(ok());
    return *std::move(value_);
  }
  [[nodiscard]] T& operator*() & { return value(); }
  [[nodiscard]] const T& operator*() const& { return value(); }
  [[nodiscard]] T&& operator*() && { return std::move(*this).value(); }
  [[nodiscard]] T* operator->() { return &value(); }
  [[nodiscard]] const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace nanwatch
