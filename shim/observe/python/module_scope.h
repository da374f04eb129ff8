// SPDX-License-Identifier: Apache-2.0
// torch.nn.Module.__call__, replaced by a C method descriptor that keeps this thread's ScopeStack.
//
// Why so: a Python wrapper costs 170 ns a call and global hooks 1300 ns and break torch.compile;
// this costs what cannot be measured. It answers every attribute it lacks (and `__module__`,
// `__doc__`) from the function it wraps, so that torch.profiler, inspect and functools.wraps see
// that function. It is installed before torch._dynamo is imported, or dynamo's own copy of the
// original is replaced as well: else fullgraph compilation would fail.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

class PythonBridge;

class ModuleScope {
 public:
  explicit ModuleScope(PythonBridge& bridge) noexcept : bridge_(bridge) {}

  // GIL held, on any thread: replaces Module.__call__ when torch.nn.modules.module is fully
  // imported. Leaves Python's error indicator as it was. Does nothing once installed.
  void TryInstall();
  [[nodiscard]] bool installed() const noexcept {
    return installed_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

 private:
  friend struct ModuleCall;

  [[nodiscard]] PyObj* ReadyModuleClass() const;
  [[nodiscard]] bool Replace(PyObj* module_class);
  [[nodiscard]] bool MakeDescriptor(PyObj* original);
  void ReplaceDynamoCopies(PyObj* original) const;

  PythonBridge& bridge_;
  std::atomic<bool> installed_{false};
  std::atomic<bool> failed_{false};  // tried and refused: not again
  PyObj* descriptor_ = nullptr;      // owned for ever
  PyObj* module_class_ = nullptr;    // likewise
};

}  // namespace nanwatch
