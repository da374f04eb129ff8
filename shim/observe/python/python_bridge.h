// SPDX-License-Identifier: Apache-2.0
// The one way between the observer and Python: layers of module calls, names of parameters, source
// lines.
//
// One object a process, made by the observer with `new` and never deleted: Python keeps pointers
// into it and the order in which a process ends is undefined. Where there is no Python, or one that
// is not supported, everything here stays silent: layers are null, names are not found, source
// lines are empty.
#pragma once

#include <ATen/core/TensorBase.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/observe/python/api/notebook_cells.h"
#include "shim/observe/python/api/python_api.h"
#include "shim/observe/python/api/python_frames.h"
#include "shim/observe/python/calls/backward_calls.h"
#include "shim/observe/python/calls/builtin_calls.h"
#include "shim/observe/python/calls/checkpoint_calls.h"
#include "shim/observe/python/calls/exit_call.h"
#include "shim/observe/python/calls/graph_calls.h"
#include "shim/observe/python/calls/loader_fetch.h"
#include "shim/observe/python/calls/optimizer_hooks.h"
#include "shim/observe/python/calls/profiler_calls.h"
#include "shim/observe/python/calls/scaler_calls.h"
#include "shim/observe/python/module_scope.h"
#include "shim/observe/python/names/layer_table.h"
#include "shim/observe/python/names/module_tree.h"
#include "shim/observe/python/names/optimizer_tensors.h"
#include "shim/observe/python/names/python_names.h"

namespace nanwatch {

// What the bridge calls, on the thread that calls the module, with the GIL held. Each may be null,
// must not throw, must not call Python and should be short. The arrays and names live until the
// function returns.
struct PythonBridgeCallbacks {
  // A depth-0 module call begins: says which of the three below are wanted for it.
  struct Wanted {
    bool arguments = true;
    bool result = true;
    bool module_results = false;
  };
  Wanted (*on_root_call)() = nullptr;
  // Tensors among the arguments of a depth-0 module call, before it runs.
  void (*on_root_arguments)(const at::TensorBase* const* tensors, const char* const* names,
                            size_t count) = nullptr;
  // Tensors that a depth-0 call returned.
  void (*on_root_result)(const at::TensorBase* const* tensors, size_t count) = nullptr;
  // Tensors that a call of any depth returned. CurrentLayer() is that module's layer.
  void (*on_module_result)(const at::TensorBase* const* tensors, size_t count) = nullptr;
  // Tensors returned by a module in whose call a compiled region ran (MarkCompiledRegion), or by an
  // OptimizedModule, and its arguments. CurrentLayer() is that module's layer.
  void (*on_region_outputs)(const at::TensorBase* const* outputs, size_t output_count,
                            const at::TensorBase* const* inputs, const char* const* input_names,
                            size_t input_count) = nullptr;
  // A root was seen for the first time, before its first call runs; its tensors are in names().
  void (*on_new_root)(const Layer* root) = nullptr;
  // A step of an optimizer begins and has ended (optimizer_hooks.h), and they are told from now on.
  OptimizerHooks::Callbacks on_step;
  void (*on_steps_told)() = nullptr;
  // See scaler_calls.h; from when steps are told.
  ScalerCalls::Callbacks on_scaler;
  // See backward_calls.h; from when modules' calls are seen.
  OnBackwardCall on_backward = nullptr;
  // See builtin_calls.h; from when steps are told, or modules' calls are seen.
  BuiltinCalls::Callbacks on_builtin;
  // See graph_calls.h; from ReplaceGraphCallsSoon on.
  OnGraphCall on_graph_call = nullptr;
  // See checkpoint_calls.h; from when steps are told.
  CheckpointCalls::Callbacks on_checkpoint;
  // A profiler of torch's is about to start; from ReplaceProfilerCallsSoon on.
  void (*on_profiler)() = nullptr;
  // A notebook's cell begins to run, or the one that has imported torch runs (notebook_cells.h).
  void (*on_cell)() = nullptr;
  // See exit_call.h; from CallAtExitSoon on.
  ExitCall::OnExit on_exit = nullptr;
  // See exit_call.h; from WatchOsExitSoon on.
  ExitCall::BeforeOsExit before_os_exit = nullptr;
  // One line to say to the user, once; without a newline.
  void (*on_message)(const char* line) = nullptr;
  // On the watch thread, without the GIL: modules' calls are seen from now on, or are not going to
  // be for the time being.
  void (*on_settled)() = nullptr;
  // With the GIL, once at most, before any module's call is seen: torch had been imported when
  // Python first had time for us, so that the program may have run ops before the observer came.
  void (*on_late)() = nullptr;
};

class PythonBridge {
 public:
  explicit PythonBridge(const PythonBridgeCallbacks& callbacks) noexcept;
  PythonBridge(const PythonBridge&) = delete;
  PythonBridge& operator=(const PythonBridge&) = delete;

  // For the watch thread: waits for Python and torch.nn, and installs the descriptor from Python's
  // main thread (by a pending call, so that this thread never holds the GIL). Returns when
  // installed, when it never will be, when Python ends, when *active becomes 0, or after 120 s
  // without any Python. `late`: in a process that ran already; a call of a module that is under way
  // is then let end first, for 10 s, because what it calls would be taken for roots; and a program
  // without Python is not waited for.
  void RunInstallLoop(const volatile uint32_t* active, bool late) noexcept;

  // GIL held: the same at once, for a process that is already up (tests).
  bool InstallNow();

  [[nodiscard]] bool installed() const noexcept { return scope_.installed(); }

  // ---- any thread, no GIL
  [[nodiscard]] const PythonNames& names() const noexcept { return names_; }
  size_t UserSourceLine(char* out, size_t size) const noexcept {
    return frames_.UserSourceLine(out, size);
  }
  [[nodiscard]] uint32_t UserCall() const noexcept { return frames_.UserCall(); }
  // Of a notebook: goes up with every cell that begins; else 0.
  [[nodiscard]] uint32_t cell_epoch() const noexcept { return cells_.epoch(); }
  // The number of the one that runs, or ran last.
  [[nodiscard]] uint32_t running_cell() const noexcept { return cells_.running(); }
  // For the first tensor on a GPU.
  void ReplaceGraphCallsSoon() noexcept {
    if (installed()) graph_calls_.ReplaceSoon();
  }
  // Before kernels are traced.
  void ReplaceProfilerCallsSoon() noexcept {
    if (installed()) profiler_calls_.ReplaceSoon();
  }
  // Before steps go unchecked, and once something bad was found: it may end the program.
  void CallAtExitSoon() noexcept {
    if (installed()) exit_call_.RegisterSoon();
  }
  // For the first tensor on a GPU, whose answers have to be waited for.
  void WatchOsExitSoon() noexcept {
    if (installed()) exit_call_.ReplaceOsExitSoon();
  }
  [[nodiscard]] ProfilerCalls::State profiler_calls() const noexcept {
    return profiler_calls_.state();
  }
  void WantWholeStacks(bool on) noexcept { frames_.WantWholeStacks(on); }
  [[nodiscard]] bool whole_stacks() const noexcept { return frames_.whole_stacks(); }
  [[nodiscard]] PythonFrames::UserPlace UserPlaceNow() const noexcept {
    return frames_.UserPlaceNow();
  }
  [[nodiscard]] const void* OptimizerOnThisThread() const noexcept {
    return frames_.OptimizerOnThisThread();
  }
  [[nodiscard]] uint32_t OptimizersOnThisThread() const noexcept {
    return frames_.OptimizersOnThisThread();
  }
  // Which samples a DataLoader is fetching on this thread; false: none that can be named.
  [[nodiscard]] bool ReadLoaderSamples(const LoaderFetch::Rows& rows,
                                       wire::LoaderSamples* samples) const noexcept {
    return loader_fetch_.ReadNow(rows, samples);
  }
  // Steps of optimizers are told by callbacks_.on_step.
  // GIL held, with each step: functions of modules that were imported only now are replaced too.
  void ReplaceSavesImportedLate() { checkpoint_calls_.TryReplace(); }
  [[nodiscard]] bool ReportsSteps() const noexcept { return hooks_.installed(); }
  // GIL held, once a step: whether this process is in a torch.distributed group, which is asked in
  // the first step and one in 32; and, any thread, whether it was ever found to be.
  bool FindDistributed() noexcept;
  [[nodiscard]] bool found_distributed() const noexcept {
    return distributed_.load(std::memory_order_relaxed);
  }
  // Takes the GIL for a moment, and leaves an exception (nanwatch.NonFiniteGradient, a
  // FloatingPointError) that says `message` to be raised on this thread before its next line of
  // Python. False when there is no Python here.
  bool RaiseSoon(const char* message) noexcept;
  // This thread sleeps, and lets others run Python meanwhile. With or without the GIL.
  void Rest(uint32_t microseconds) noexcept;
  // Takes the GIL for a moment: see optimizer_tensors.h.
  bool ReadOptimizer(const void* optimizer, OptimizedTensors* tensors) noexcept;
  // Takes the GIL for some milliseconds: see live_tensors.h.
  [[nodiscard]] bool ForEachLiveTensor(bool (*fn)(void* context, const at::TensorBase& tensor),
                                       void* context) noexcept;
  using OnReplaced = void (*)(void* context, const at::TensorBase& tensor,
                              const NamedTensor& named);
  // The GIL is held, and a depth-0 call ends: hands out each buffer of its modules that is another
  // tensor than before (`self.mean = 0.9 * self.mean + ...`).
  void ForEachReplacedBuffer(OnReplaced fn, void* context) noexcept;
  // The same where Python ends, of all modules that were called and are alive: a parameter, too, may
  // be another (`layer.weight = nn.Parameter(...)`).
  void ForEachReplacedAtLast(OnReplaced fn, void* context) noexcept;

 private:
  friend class ModuleScope;
  friend struct ModuleCall;

  // ---- GIL held
  [[nodiscard]] bool Prepare(
      PyObj* module_class);  // proves what has to be proven; false: do not install
  bool EnterRoot(PyObj* module, PyObj* const* args, size_t count, PyObj* keyword_names);
  [[nodiscard]] const ModuleEntry* EnterUnknown(PyObj* module, Root* outermost);
  void HandOutResult(PyObj* result, PyObj* const* args, size_t count, PyObj* keyword_names);
  void HandOutRootResult(PyObj* result);
  void HandOutReplaced(const std::vector<PythonNames::Held>& before, OnReplaced fn,
                       void* context) const;
  void HandOutModuleResult(PyObj* result);
  static int Pending(void* bridge);
  static int PendingHooks(void* bridge);
  void InstallInTime(const volatile uint32_t* active, bool late) noexcept;
  void InstallHooksInTime() noexcept;
  void Queue(int (*call)(void*)) noexcept;
  [[nodiscard]] bool WaitsForCallToEnd() noexcept;
  void AskWhetherLate() noexcept;
  void Settle() noexcept;
  void Say(const char* line) const noexcept;

  PythonBridgeCallbacks callbacks_;
  PythonApi api_;
  LayerTable layers_;
  PythonNames names_;
  NotebookCells cells_;
  PythonFrames frames_;
  LoaderFetch loader_fetch_;
  ModuleTree tree_;
  ModuleScope scope_;
  OptimizerHooks hooks_;
  ScalerCalls scaler_calls_;
  BackwardCalls backward_calls_;
  BuiltinCalls builtin_calls_;
  CheckpointCalls checkpoint_calls_;
  GraphCalls graph_calls_;
  ProfilerCalls profiler_calls_;
  ExitCall exit_call_;
  PyObj* tensor_type_ = nullptr;  // torch._C.TensorBase, owned
  const volatile uint32_t* active_ = nullptr;
  std::atomic<bool> queued_{false};  // a pending call is under way
  std::atomic<bool> distributed_{false};
  uint32_t asked_distributed_ = 0;  // GIL held
  bool said_unusable_ = false;
  bool asked_whether_late_ = false;  // GIL held
  uint64_t patient_until_ns_ = 0;    // CLOCK_MONOTONIC; watch thread, before the first pending call
};

}  // namespace nanwatch
