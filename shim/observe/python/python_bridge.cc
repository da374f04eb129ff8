// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/python_bridge.h"

#include <time.h>
#include <unistd.h>

#include <exception>
#include <string>
#include <utility>

#include "proto/wire/text.h"
#include "shim/host/monotonic_clock.h"
#include "shim/observe/python/calls/call_tensors.h"
#include "shim/observe/python/names/live_tensors.h"

namespace nanwatch {
namespace {

constexpr int64_t kPollNs = 5'000'000;
constexpr int64_t kSlowPollNs = 50'000'000;  // once nothing came of it for a while
constexpr uint64_t kPatienceNs = 120'000'000'000;
// How long a late observer waits until no module is being called, and until it says that no layers
// are seen yet.
constexpr uint64_t kCallPatienceNs = 10'000'000'000;
constexpr uint64_t kSettlePatienceNs = 5'000'000'000;

void Sleep(int64_t ns) noexcept {
  const timespec span{.tv_sec = 0, .tv_nsec = ns};
  nanosleep(&span, nullptr);
}

}  // namespace

PythonBridge::PythonBridge(const PythonBridgeCallbacks& callbacks) noexcept
    : callbacks_(callbacks),
      cells_(api_, callbacks.on_cell),
      frames_(api_, &cells_),
      loader_fetch_(api_, frames_),
      tree_(api_, layers_, names_),
      scope_(*this),
      hooks_(api_, frames_),
      scaler_calls_(api_, names_, tensor_type_, callbacks.on_scaler),
      backward_calls_(api_, names_, tensor_type_, callbacks.on_backward),
      builtin_calls_(api_, names_, tensor_type_, callbacks.on_builtin),
      checkpoint_calls_(api_, names_, tensor_type_, callbacks.on_checkpoint),
      graph_calls_(api_, callbacks.on_graph_call),
      profiler_calls_(api_, callbacks.on_profiler),
      exit_call_(api_, callbacks.on_exit, callbacks.before_os_exit) {}

void PythonBridge::Say(const char* line) const noexcept {
  if (callbacks_.on_message != nullptr) callbacks_.on_message(line);
}

void PythonBridge::Settle() noexcept {
  if (callbacks_.on_settled != nullptr) callbacks_.on_settled();
}

void PythonBridge::RunInstallLoop(const volatile uint32_t* active, bool late) noexcept {
  InstallInTime(active, late);
  Settle();
  // A step that torch.compile has compiled would be compiled anew for hooks that come late.
  if (scope_.installed() && !late) InstallHooksInTime();
}

// From Python's main thread, between two of its instructions; one call at a time.
void PythonBridge::Queue(int (*call)(void*)) noexcept {
  if (!queued_.exchange(true) && api_.Py_AddPendingCall(call, this) != 0) queued_ = false;
}

// torch.optim is imported right after torch.nn.
void PythonBridge::InstallHooksInTime() noexcept {
  if (callbacks_.on_step.on_begin == nullptr) return;
  const uint64_t begin = MonotonicNs();
  while (*active_ != 0 && !hooks_.installed() && !hooks_.failed() && api_.Running() &&
         MonotonicNs() - begin < kPatienceNs) {
    Queue(PendingHooks);
    Sleep(MonotonicNs() - begin < kCallPatienceNs ? kPollNs : kSlowPollNs);
  }
}

int PythonBridge::PendingHooks(void* bridge) {
  auto* self = static_cast<PythonBridge*>(bridge);
  if (*self->active_ != 0) {
    self->hooks_.TryInstall(self->callbacks_.on_step);
    if (self->hooks_.installed()) {
      self->scaler_calls_.TryReplace();
      // Not there yet when modules' calls are seen: torch.nn is imported before all of
      // torch.autograd.
      self->backward_calls_.TryReplace();
      self->builtin_calls_.TryExchange();
      self->checkpoint_calls_.TryReplace();
    }
    if (self->hooks_.installed() && self->callbacks_.on_steps_told != nullptr) {
      self->callbacks_.on_steps_told();
    }
  }
  self->queued_ = false;
  return 0;
}

void PythonBridge::InstallInTime(const volatile uint32_t* active, bool late) noexcept {
  active_ = active;
  const uint64_t begin = MonotonicNs();
  PythonPresence presence = api_.Resolve();
  for (; presence == PythonPresence::kAbsent && *active != 0; presence = api_.Resolve()) {
    if (late || MonotonicNs() - begin > kPatienceNs) return;
    Sleep(kPollNs);
  }
  patient_until_ns_ = late ? begin + kCallPatienceNs : 0;
  bool settled = false;
  if (presence == PythonPresence::kUnsupported) {
    Say("no layers or source lines: they need a CPython from 3.10 to 3.14 with a GIL");
    return;
  }
  bool was_up = false;
  while (*active != 0 && !scope_.installed() && !scope_.failed()) {
    const bool is_up = api_.Running();
    if (was_up && !is_up) return;
    was_up = is_up;
    if (is_up) Queue(Pending);
    Sleep(MonotonicNs() - begin < kPatienceNs ? kPollNs : kSlowPollNs);
    if (late && !settled && !scope_.installed() && MonotonicNs() - begin > kSettlePatienceNs) {
      settled = true;
      Say("no layers yet: Python's main thread has been in one call since nanwatch came");
      Settle();
    }
  }
  if (scope_.failed())
    Say("no layers: torch.nn.Module.__call__ is not as this version is known to have it");
}

// On Python's main thread, between two of its instructions, with the GIL.
int PythonBridge::Pending(void* bridge) {
  auto* self = static_cast<PythonBridge*>(bridge);
  if (self->active_ != nullptr && *self->active_ != 0 && !self->WaitsForCallToEnd()) {
    self->AskWhetherLate();
    self->scope_.TryInstall();
    if (self->installed()) {
      self->backward_calls_.TryReplace();
      self->cells_.TryInstall();
      self->builtin_calls_.TryExchange();
    }
  }
  self->queued_ = false;
  return 0;
}

// The observer comes while torch is being imported, and waits for it with calls of this kind.
void PythonBridge::AskWhetherLate() noexcept {
  if (std::exchange(asked_whether_late_, true) || callbacks_.on_late == nullptr) return;
  try {
    if (api_.ImportedModule("torch") != nullptr) callbacks_.on_late();
  } catch (const std::exception&) {
    callbacks_.on_late();
  }
}

bool PythonBridge::WaitsForCallToEnd() noexcept {
  if (MonotonicNs() >= patient_until_ns_) return false;
  return (frames_.proven() || frames_.Prove()) && frames_.IsInModuleCall();
}

bool PythonBridge::InstallNow() {
  if (api_.Resolve() != PythonPresence::kUsable) return false;
  scope_.TryInstall();
  return scope_.installed();
}

bool PythonBridge::Prepare(PyObj* module_class) {
  if (!frames_.proven() && !frames_.Prove())
    Say("no source lines: this Python's frames are not laid out as expected");
  loader_fetch_.Prove();
  PyObj* torch_c = api_.LoadedModule("torch._C");
  if (torch_c == nullptr) return false;
  tensor_type_ = api_.AttributeOrNull(torch_c, "TensorBase");
  if (tensor_type_ == nullptr) tensor_type_ = api_.AttributeOrNull(torch_c, "_TensorBase");
  return tensor_type_ != nullptr && tree_.Prepare(module_class, tensor_type_);
}

// Before a depth-0 call: sets the thread's layer and root, hands out the root if it is new, and the
// call's tensors.
bool PythonBridge::EnterRoot(PyObj* module, PyObj* const* args, size_t count,
                             PyObj* keyword_names) {
  bool optimized = false;
  ScopeStack& stack = scope_stack;
  try {
    cells_.Refresh();
    bool is_new = false;
    const ModuleEntry* entry = tree_.EnterRoot(module, &is_new);
    stack.top = entry == nullptr ? nullptr : entry->layer;
    stack.outermost = entry == nullptr ? nullptr : entry->root;
    optimized = entry != nullptr && entry->optimized;
    PythonBridgeCallbacks::Wanted wanted;
    if (callbacks_.on_root_call != nullptr) wanted = callbacks_.on_root_call();
    stack.result_wanted = wanted.result && callbacks_.on_root_result != nullptr;
    stack.module_results_wanted = wanted.module_results && callbacks_.on_module_result != nullptr;
    if (is_new) scaler_calls_.TryReplaceSharded();
    if (is_new) checkpoint_calls_.TryReplace();
    if (is_new && entry != nullptr && callbacks_.on_new_root != nullptr)
      callbacks_.on_new_root(entry->root->layer);
    if (wanted.arguments && callbacks_.on_root_arguments != nullptr) {
      CallTensors tensors(api_, names_, tensor_type_);
      tensors.AddArguments(args, count, keyword_names);
      if (tensors.count() > 0)
        callbacks_.on_root_arguments(tensors.tensors(), tensors.names(), tensors.count());
    }
    if (names_.unusable() && !said_unusable_) {
      said_unusable_ = true;
      Say("no parameter names: a torch.Tensor object does not hold its tensor where this version "
          "is known to keep it");
    }
  } catch (const std::exception&) {
    // Out of memory: the call goes on without a layer. Never catch(...): see PyOwned.
  }
  return optimized;
}

const ModuleEntry* PythonBridge::EnterUnknown(PyObj* module, Root* outermost) {
  try {
    return tree_.EnterUnknown(module, outermost);
  } catch (const std::exception&) {
    return nullptr;
  }
}

bool PythonBridge::ReadOptimizer(const void* optimizer, OptimizedTensors* tensors) noexcept {
  if (!installed() || names_.unusable()) return false;
  return ReadOptimizedTensors(api_, names_, tensor_type_,
                              static_cast<PyObj*>(const_cast<void*>(optimizer)), tensors);
}

bool PythonBridge::ForEachLiveTensor(bool (*fn)(void* context, const at::TensorBase& tensor),
                                     void* context) noexcept {
  if (!installed() || names_.unusable()) return false;
  return nanwatch::ForEachLiveTensor(api_, names_, tensor_type_, fn, context);
}

void PythonBridge::HandOutReplaced(const std::vector<PythonNames::Held>& before, OnReplaced fn,
                                   void* context) const {
  for (const PythonNames::Held& held : before) {
    const at::TensorBase tensor = names_.ReplacedBy(held);
    if (tensor.defined()) fn(context, tensor, *held.named);
  }
}

void PythonBridge::ForEachReplacedBuffer(OnReplaced fn, void* context) noexcept try {
  Root* root = scope_stack.outermost;
  if (root == nullptr || names_.unusable()) return;
  const std::vector<PythonNames::Held> lost = names_.LostBuffers(*root);
  if (!lost.empty() && tree_.WalkAgain(*root)) HandOutReplaced(lost, fn, context);
} catch (const std::exception&) {
  // Out of memory: they are found where they are read.
}

void PythonBridge::ForEachReplacedAtLast(OnReplaced fn, void* context) noexcept try {
  if (names_.unusable()) return;
  const std::vector<Root*> roots = layers_.roots();
  for (Root* root : roots) {
    const std::vector<PythonNames::Held> before = names_.HeldBy(*root);
    if (tree_.WalkAtLast(*root)) HandOutReplaced(before, fn, context);
  }
} catch (const std::exception&) {
  // Out of memory.
}

bool PythonBridge::FindDistributed() noexcept try {
  if (found_distributed()) return true;
  constexpr uint32_t kAskEvery = 32;
  if (asked_distributed_++ % kAskEvery != 0) return false;
  PyObj* distributed = api_.LoadedModule("torch.distributed");
  if (distributed == nullptr) return false;
  const PyOwned is_initialized(api_, api_.AttributeOrNull(distributed, "is_initialized"));
  if (!is_initialized) return false;  // a build without it
  const PyOwned answer(
      api_, api_.PyObject_CallFunctionObjArgs(is_initialized.get(), static_cast<PyObj*>(nullptr)));
  api_.PyErr_Clear();
  if (answer.get() != api_.true_object) return false;
  distributed_.store(true, std::memory_order_relaxed);
  return true;
} catch (const std::exception&) {
  return false;
}

bool PythonBridge::RaiseSoon(const char* message) noexcept try {
  if (!installed() || !api_.Running() || api_.PyGILState_GetThisThreadState() == nullptr) {
    return false;
  }
  // What is left for a thread must be a class, so that the message is the class's.
  constexpr size_t kMessageBytesMax = 1024;
  static constexpr char kClass[] =
      "class NonFiniteGradient(FloatingPointError):\n"
      "    __module__ = 'nanwatch'\n"
      "    message = message\n"
      "    def __str__(self):\n"
      "        return self.message\n";
  // A name in it may have been cut inside a character, which Python refuses.
  const std::string clean = wire::CleanText(message, kMessageBytesMax);
  const Gil gil(api_);
  const PyOwned text(api_, api_.PyUnicode_FromString(clean.c_str()));
  if (!text) return false;
  const PyOwned exception(api_,
                          api_.Define(kClass, "NonFiniteGradient", {{"message", text.get()}}));
  if (!exception) return false;
  return api_.PyThreadState_SetAsyncExc(api_.PyThread_get_thread_ident(), exception.get()) == 1;
} catch (const std::exception&) {
  return false;
}

void PythonBridge::Rest(uint32_t microseconds) noexcept {
  const bool has_gil = installed() && api_.Running() &&
                       api_.PyGILState_GetThisThreadState() != nullptr &&
                       api_.PyGILState_Check() != 0;
  void* const state = has_gil ? api_.PyEval_SaveThread() : nullptr;
  usleep(microseconds);
  if (state == nullptr) return;
  // Python ends threads that come back for the GIL while it ends itself, from below our frames.
  while (api_.Py_IsFinalizing() != 0) pause();
  api_.PyEval_RestoreThread(state);
}

void PythonBridge::HandOutRootResult(PyObj* result) {
  CallTensors outputs(api_, names_, tensor_type_);
  outputs.AddResult(result);
  if (outputs.count() != 0) callbacks_.on_root_result(outputs.tensors(), outputs.count());
}

// Most modules return one tensor, which needs neither a search nor a name.
void PythonBridge::HandOutModuleResult(PyObj* result) {
  if (api_.PyType_IsSubtype(result->type, tensor_type_) != 0) {
    const at::TensorBase* tensor = names_.TensorOf(result);
    if (tensor != nullptr) callbacks_.on_module_result(&tensor, 1);
    return;
  }
  CallTensors outputs(api_, names_, tensor_type_);
  outputs.AddResult(result);
  if (outputs.count() != 0) callbacks_.on_module_result(outputs.tensors(), outputs.count());
}

void PythonBridge::HandOutResult(PyObj* result, PyObj* const* args, size_t count,
                                 PyObj* keyword_names) {
  if (callbacks_.on_region_outputs == nullptr) return;
  CallTensors outputs(api_, names_, tensor_type_);
  outputs.AddResult(result);
  if (outputs.count() == 0) return;
  CallTensors inputs(api_, names_, tensor_type_);
  inputs.AddArguments(args, count, keyword_names);
  callbacks_.on_region_outputs(outputs.tensors(), outputs.count(), inputs.tensors(), inputs.names(),
                               inputs.count());
}

}  // namespace nanwatch
