// SPDX-License-Identifier: Apache-2.0
// The switch of the benches: changes what the observer does in its own process, at once, and without
// a word in the log. It is linked into an observer that is otherwise the one users get; that one has
// no such function. One thread, between two steps.
#include <ATen/record_function.h>

#include <iterator>
#include <memory>

#include "shim/observe/observer.h"

namespace nanwatch {
namespace {

std::unique_ptr<at::ObserverContext> EmptyStart(const at::RecordFunction&) { return nullptr; }
void EmptyEnd(const at::RecordFunction&, at::ObserverContext*) {}

// What a callback costs that asks for outputs, as the observer's does, and does nothing.
at::CallbackHandle AddEmptyCallback() {
  return at::addGlobalCallback(
      at::RecordFunctionCallback(EmptyStart, EmptyEnd)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                   at::RecordScope::USER_SCOPE}));
}

}  // namespace

// In the order of observer_switch.py.
enum class Bench { kBare, kEmptyCallback, kFull, kIdle, kCanary, kAuto, kStats, kSampled };

struct BenchMode {
  static void Set(Observer& observer, Bench mode, wire::Level level) {
    static at::CallbackHandle empty = 0;
    const bool observes = mode != Bench::kBare && mode != Bench::kEmptyCallback;
    observer.measuring.wanted_ = false;
    observer.SetActive(observes);  // else calls of modules pass through
    observer.level.off_to_measure_ = false;
    observer.level.asked_ = level;
    observer.level.watched_ = level == wire::Level::kAuto ? wire::Level::kCanary : level;
    observer.parameter_stats.SetInterval(mode == Bench::kStats ? 1 : 0);
    observer.steps.SetOpsWatchedUntil(0);  // as in a job that has run for a while
    if (empty != 0) at::removeCallback(empty);
    observer.input_tracking.Unregister();
    empty = mode == Bench::kEmptyCallback ? AddEmptyCallback() : 0;
    if (observes) {
      observer.input_tracking.Register(mode == Bench::kFull || mode == Bench::kSampled);
      observer.watch_switch.Apply(observer.level, nullptr);
    }
  }
};

}  // namespace nanwatch

extern "C" __attribute__((visibility("default"))) void nanwatch_bench_mode(int mode) {
  using namespace nanwatch;
  using wire::Level;
  constexpr Level kLevels[] = {Level::kFull,   Level::kFull, Level::kFull,   Level::kIdle,
                               Level::kCanary, Level::kAuto, Level::kCanary, Level::kSampled};
  static_assert(std::size(kLevels) == static_cast<size_t>(Bench::kSampled) + 1);
  Observer* observer = Observer::Get();
  if (observer == nullptr || mode < 0 || mode >= static_cast<int>(std::size(kLevels))) return;
  BenchMode::Set(*observer, static_cast<Bench>(mode), kLevels[mode]);
}
