// SPDX-License-Identifier: Apache-2.0
// The steps of torch's optimizers, by the hooks that torch.optim keeps for all of them
// (register_optimizer_step_pre_hook and its twin).
//
// Why so, beside the ranges that each step opens: those are seen by a callback of libtorch's alone,
// and libtorch copies its list of callbacks at every node of a backward pass, which costs a step of
// half a millisecond 0.3 % of its instructions for one callback that has nothing to do there. A
// process at level idle registers none with these.
//
// The hooks are functions of Python, because torch._dynamo follows them where an optimizer's step
// is compiled: there they say that it is compiling and do nothing.
//
// A step that ends with an exception does not reach its second hook: how many are really open is
// told by PythonFrames::OptimizersOnThisThread.
#pragma once

#include <atomic>

#include "shim/observe/python/api/python_api.h"
#include "shim/observe/python/api/python_frames.h"
#include "shim/observe/python/names/known_optimizers.h"

namespace nanwatch {

class OptimizerHooks {
 public:
  // On the thread of the step, with the GIL held, as it begins and as it has ended. `name` is that
  // of its range, "Optimizer.step#SGD.step", `identity` what KnownOptimizers says.
  struct Callbacks {
    void (*on_begin)(const void* optimizer, const void* identity, const char* name) = nullptr;
    void (*on_end)() = nullptr;
  };

  OptimizerHooks(const PythonApi& api, const PythonFrames& frames) noexcept
      : api_(api), frames_(frames), known_(api) {}

  // GIL held: puts the hooks in place once torch.optim.optimizer is imported to the end. Leaves
  // Python's error indicator as it was. Does nothing once installed or failed.
  void TryInstall(const Callbacks& callbacks);
  // Any thread. Steps are told, all of them; their ranges need not be looked at.
  [[nodiscard]] bool installed() const noexcept {
    return installed_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  bool Install(PyObj* module, PyObj* is_compiling);
  [[nodiscard]] PyObj* MakeHook(PyObj* is_compiling, PyMethod* told);
  static PyObj* Begin(PyObj* self, PyObj* optimizer);
  static PyObj* End(PyObj* self, PyObj* optimizer);

  const PythonApi& api_;
  const PythonFrames& frames_;
  Callbacks callbacks_;
  KnownOptimizers known_;  // GIL held
  std::atomic<bool> installed_{false};
  bool failed_ = false;  // GIL held
};

}  // namespace nanwatch
