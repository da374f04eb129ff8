// SPDX-License-Identifier: Apache-2.0
// A call of ours when Python ends, while its modules and tensors are still there: the process's own
// exit handlers run when they are gone. Registered with Python's atexit, once there is something to
// do then. And one before `os._exit`, behind which no handler runs at all: so ends every child that
// multiprocessing forks. The function stands in `os`; who took it out of there before goes by.
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

  // Called with the GIL held, on the thread that ends the process.
  using BeforeOsExit = void (*)();

  // Both may be null.
  ExitCall(const PythonApi& api, OnExit on_exit, BeforeOsExit before_os_exit) noexcept
      : api_(api), on_exit_(on_exit), before_os_exit_(before_os_exit) {}
  ExitCall(const ExitCall&) = delete;
  ExitCall& operator=(const ExitCall&) = delete;

  // Any thread, no GIL: registers it from Python's main thread, between two of its instructions.
  void RegisterSoon() noexcept;
  // The same of the function in the place of `os._exit`.
  void ReplaceOsExitSoon() noexcept;

 private:
  static int Pending(void* self);
  static int PendingReplace(void* self);
  void Register();
  void ReplaceOsExit();
  Ending EndingBy(PyObj* exception) const;
  static PyObj* CallOnExit(PyObj* self, PyObj* unused);
  static PyObj* CallOsExit(PyObj* self, PyObj* arguments, PyObj* named);

  const PythonApi& api_;
  const OnExit on_exit_;
  const BeforeOsExit before_os_exit_;
  std::atomic<bool> asked_{false};
  std::atomic<bool> asked_to_replace_{false};
  PyObj* os_exit_ = nullptr;  // the original, owned for ever
};

}  // namespace nanwatch
