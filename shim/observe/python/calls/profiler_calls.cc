// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/calls/profiler_calls.h"

namespace nanwatch {
namespace {

// A function of ours has no room for a pointer. There is one bridge per process.
ProfilerCalls* profiler_calls_of_process = nullptr;

constexpr char kCall[] =
    "def nanwatch_profiler_call(*arguments, **named):\n"
    "    tell()\n"
    "    return call(*arguments, **named)\n";

}  // namespace

void ProfilerCalls::ReplaceSoon() noexcept {
  if (on_start_ != nullptr) api_.CallSoon(&asked_, Pending, this);
}

int ProfilerCalls::Pending(void* self) {
  auto* mine = static_cast<ProfilerCalls*>(self);
  mine->state_.store(mine->Replace(), std::memory_order_release);
  return 0;
}

ProfilerCalls::State ProfilerCalls::Replace() {
  const KeptError error(api_);
  PyObj* module = api_.LoadedModule("torch.autograd.profiler");
  if (module == nullptr || profiler_calls_of_process != nullptr) return State::kFailed;
  profiler_calls_of_process = this;
  // One of them alone tells nothing wrong.
  if (!Replace(module, "_prepare_profiler") || !Replace(module, "_enable_profiler")) {
    return State::kFailed;
  }
  const PyOwned enabled(api_, api_.AttributeOrNull(module, "_is_profiler_enabled"));
  return enabled && enabled.get() == api_.true_object ? State::kRunning : State::kTold;
}

bool ProfilerCalls::Replace(PyObj* module, const char* name) {
  static PyMethod tell = {"tell", OnCall, kPyMethodNoArguments, nullptr};
  return api_.ReplaceFunction(module, name, {kCall, "nanwatch_profiler_call"}, &tell);
}

PyObj* ProfilerCalls::OnCall(PyObj*, PyObj*) {
  const ProfilerCalls& mine = *profiler_calls_of_process;
  mine.on_start_();
  return mine.api_.NewNone();
}

}  // namespace nanwatch
