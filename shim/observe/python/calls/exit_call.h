// SPDX-License-Identifier: Apache-2.0
// A call of ours when Python ends, while its modules and tensors are still there: the process's own
// exit handlers run when they are gone. Registered with Python's atexit, once there is something to
// do then.
#pragma once

#include <atomic>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

class ExitCall {
 public:
  // Ctrl-C, or another exception; the message of that may speak of values that are not finite.
  enum class Ending { kNormal, kInterrupted, kFailed, kFailedByBadValue };

  // Called with the GIL held.
  using OnExit = void (*)(Ending ending);

  // `on_exit` may be null.
  explicit ExitCall(const PythonApi& api, OnExit on_exit) noexcept : api_(api), on_exit_(on_exit) {}
  ExitCall(const ExitCall&) = delete;
  ExitCall& operator=(const ExitCall&) = delete;

  // Any thread, no GIL: registers it from Python's main thread, between two of its instructions.
  void RegisterSoon() noexcept;

 private:
  static int Pending(void* self);
  void Register();
  Ending EndingBy(PyObj* exception) const;
  static PyObj* CallOnExit(PyObj* self, PyObj* unused);

  const PythonApi& api_;
  const OnExit on_exit_;
  std::atomic<bool> asked_{false};
};

}  // namespace nanwatch
