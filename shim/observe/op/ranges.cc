// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/op/ranges.h"

#include <cstring>

#include "shim/observe/python/python_bridge.h"
#include "shim/observe/step/step_scope.h"
#include "shim/observe/unseen/collectives.h"

namespace nanwatch {

bool Ranges::IsOptimizerStep(const char* name) noexcept {
  return std::strncmp(name, "Optimizer.step#", 15) == 0;
}

std::unique_ptr<at::ObserverContext> Ranges::Begin(ThreadState* thread,
                                                   const at::RecordFunction& range) {
  const char* name = range.name();
  if (IsOptimizerStep(name)) {
    if (python_.ReportsSteps()) return nullptr;
    BusyScope busy(thread);
    steps_.OnStepBegin(thread, name, python_.OptimizerOnThisThread());
    return nullptr;
  }
  if (!IsCollective(name)) return nullptr;
  BusyScope busy(thread);
  return collectives_.Begin(thread, range);
}

void Ranges::End(ThreadState* thread, const at::RecordFunction& range,
                 at::ObserverContext* context) {
  if (context != nullptr) {
    BusyScope busy(thread);
    return collectives_.End(thread, context);
  }
  // What the hooks do not end is ended where it began, or by an exception.
  if (!IsOptimizerStep(range.name()) || python_.ReportsSteps()) return;
  BusyScope busy(thread);
  steps_.OnStepEnd(thread);
}

}  // namespace nanwatch
