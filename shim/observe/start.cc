// SPDX-License-Identifier: Apache-2.0
// The observer as the entry library sees it: made once, on the watch thread, when libtorch is
// there.
#include <ATen/core/TensorBase.h>
#include <stdlib.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "proto/wire/naming.h"
#include "proto/wire/test_naming.h"
#include "shim/check/scan.h"
#include "shim/entry/observer_interface.h"
#include "shim/host/process_identity.h"
#include "shim/host/unwatched_mark.h"
#include "shim/observe/capsule/settings.h"
#include "shim/observe/entry_points.h"
#include "shim/observe/finding/findings.h"
#include "shim/observe/forks.h"
#include "shim/observe/observer.h"
#include "shim/observe/self_proof.h"
#include "shim/observe/step/canary.h"
#include "shim/observe/step/canary_reads.h"
#include "shim/observe/step/loss.h"
#include "shim/observe/step/scaler.h"
#include "shim/observe/torch/torch_threads.h"

namespace nanwatch {
namespace {

struct LevelName {
  const char* name;
  wire::Level level;
};
constexpr LevelName kLevels[] = {{"idle", wire::Level::kIdle},
                                 {"canary", wire::Level::kCanary},
                                 {"sampled", wire::Level::kSampled},
                                 {"full", wire::Level::kFull},
                                 {"auto", wire::Level::kAuto}};

// What people accept where they name no budget: as much as a step's time varies by itself.
constexpr double kBudgetPercent = 2;

// NANWATCH_BUDGET; 0: not given, or no number.
double GivenBudget(const NanwatchEntry* entry) {
  const char* given = getenv(wire::kEnvBudget);
  if (given == nullptr || *given == '\0') return 0;
  char* end = nullptr;
  const double percent = std::strtod(given, &end);
  if (end != given && *end == '\0' && percent > 0 && percent <= 1000) return percent;
  char line[128];
  std::snprintf(line, sizeof line, "NANWATCH_BUDGET=%.40s is no percentage: going without", given);
  entry->say(line);
  return 0;
}

// NANWATCH_MEASURE: at most this percentage of steps is left unchecked to measure what the checks
// cost, as a share. Nobody asked: none, because every unchecked step may hide something.
double GivenMeasureShare(const NanwatchEntry* entry) {
  const char* given = getenv(wire::kEnvMeasure);
  if (given == nullptr || *given == '\0') return 0;
  char* end = nullptr;
  const double percent = std::strtod(given, &end);
  if (end != given && *end == '\0' && percent >= 0 && percent <= 50) return percent / 100;
  char line[160];
  std::snprintf(
      line, sizeof line,
      "NANWATCH_MEASURE=%.40s is not a percentage of steps from 0 to 50: nothing is measured",
      given);
  entry->say(line);
  return 0;
}

// Steps of an optimizer between two looks at its parameters; see parameter_stats.h for the cost.
constexpr uint32_t kStatsInterval = 100;

// NANWATCH_STATS; 0: no looks.
uint32_t GivenStatsInterval(const NanwatchEntry* entry) {
  const char* given = getenv(wire::kEnvStats);
  if (given == nullptr || *given == '\0') return kStatsInterval;
  char* end = nullptr;
  const long steps = std::strtol(given, &end, 10);
  if (end != given && *end == '\0' && steps >= 0 && steps <= INT32_MAX) {
    return static_cast<uint32_t>(steps);
  }
  char line[128];
  std::snprintf(line, sizeof line, "NANWATCH_STATS=%.40s is no number of steps: taking %u", given,
                kStatsInterval);
  entry->say(line);
  return kStatsInterval;
}

// A variable that is 0 or 1; 0 where it is not set.
bool GivenSwitch(const NanwatchEntry* entry, const char* variable) {
  const char* given = getenv(variable);
  if (given == nullptr || *given == '\0' || std::strcmp(given, "0") == 0) return false;
  if (std::strcmp(given, "1") == 0) return true;
  char line[128];
  std::snprintf(line, sizeof line, "%s=%.40s is neither 0 nor 1: taking 0", variable, given);
  entry->say(line);
  return false;
}

// NANWATCH_GPU, and what tests ask of the queue.
GpuEventQueue::Settings GivenGpuSettings() {
  const char* given = getenv(wire::kEnvGpu);
  return {.checks = given == nullptr || std::strcmp(given, "0") != 0,
          .queue_bytes_for_test = QueueBytesForTest()};
}

// Of level sampled. A result of the size of the second-level cache is mostly there when its op
// ends, and reading it costs little.
uint64_t ChosenSampleLimit() {
  constexpr long kLeastBytes = 256 << 10;
  constexpr long kMostBytes = 2 << 20;
  const char* for_test = getenv(wire::kEnvSampleLimit);
  if (for_test != nullptr) return std::strtoull(for_test, nullptr, 10);
  return static_cast<uint64_t>(std::clamp(sysconf(_SC_LEVEL2_CACHE_SIZE), kLeastBytes, kMostBytes));
}

LevelAtStart ChosenLevel(const NanwatchEntry* entry) {
  const double given_budget = GivenBudget(entry);
  LevelAtStart start{.level = wire::Level::kFull,
                     .chosen = true,
                     .budget_percent = given_budget > 0 ? given_budget : kBudgetPercent,
                     .measure_share = GivenMeasureShare(entry),
                     .sample_limit = ChosenSampleLimit()};
  const char* asked = IsLate(*entry) ? entry->late_level : getenv(wire::kEnvLevel);
  if (asked == nullptr || *asked == '\0') {
    start.chosen = given_budget > 0;
    if (start.chosen) start.level = wire::Level::kAuto;
    return start;
  }
  if (std::strcmp(asked, wire::kFormerSampled) == 0) {
    entry->say(wire::kFormerSampledNotice);
    asked = "sampled";
  }
  for (const LevelName& known : kLevels) {
    if (std::strcmp(known.name, asked) != 0) continue;
    start.level = known.level;
    return start;
  }
  char line[160];
  std::snprintf(line, sizeof line,
                "NANWATCH_LEVEL=%.40s is no level (idle, canary, sampled, full, auto): watching at "
                "level full",
                asked);
  entry->say(line);
  return start;
}

// Registers, proves, and only then believes itself. False: everything is off again.
bool TurnOn(Observer* observer) {
  observer->input_tracking.Register(true);
  observer->SetActive(true);
  if (!ProveOnPlantedNan()) {
    *observer->entry()->active = 0;
    observer->input_tracking.Unregister();
    return false;
  }
  observer->self_proven = true;
  if (!WatchesEveryOp(observer->level.watched())) observer->input_tracking.WatchEverywhere(false);
  return true;
}

// What Python calls, and what libtorch does not tell.
PythonBridgeCallbacks Callbacks(bool vets_checkpoints) {
  PythonBridgeCallbacks callbacks;
  callbacks.on_root_call = &entry_points::OnRootCall;
  callbacks.on_root_result = &entry_points::OnRootResult;
  callbacks.on_module_result = &entry_points::OnModuleResult;
  callbacks.on_root_arguments = &entry_points::OnRootArguments;
  callbacks.on_region_outputs = &entry_points::OnRegionOutputs;
  callbacks.on_new_root = &entry_points::OnNewRoot;
  callbacks.on_step = {&entry_points::OnStepBegin, &entry_points::OnStepEnd};
  callbacks.on_steps_told = &entry_points::OnStepsTold;
  callbacks.on_scaler = {&entry_points::OnScale, &entry_points::OnScaleUpdated};
  callbacks.on_backward = &entry_points::OnBackward;
  callbacks.on_builtin = {&entry_points::OnRecordSwitch, &entry_points::OnNumberRead,
                          &entry_points::OnAsked, &entry_points::OnData};
  if (vets_checkpoints)
    callbacks.on_checkpoint = {&entry_points::OnSaveBegins, &entry_points::OnSaveWaits,
                               &entry_points::OnSaveEnds};
  callbacks.on_graph_call = &entry_points::OnGraphCalled;
  callbacks.on_profiler = &entry_points::BeforeProfiler;
  callbacks.on_cell = &entry_points::OnCell;
  callbacks.on_exit = &entry_points::OnPythonEnds;
  callbacks.before_os_exit = &entry_points::BeforeOsExit;
  callbacks.on_message = &entry_points::OnMessage;
  callbacks.on_settled = &entry_points::OnSettled;
  callbacks.on_late = &entry_points::OnLate;
  return callbacks;
}

// Null: no memory.
Observer* MakeObserver(const NanwatchEntry* entry) {
  const bool vets = GivenSwitch(entry, wire::kEnvVetCheckpoints);
  auto* python = new (std::nothrow) PythonBridge(Callbacks(vets));
  auto* observer =
      python != nullptr ? new (std::nothrow) Observer(entry, ChosenLevel(entry), python) : nullptr;
  if (observer == nullptr) return nullptr;
  const char* on_anomaly = getenv(wire::kEnvOnAnomaly);
  observer->stops_on_anomaly = on_anomaly != nullptr && std::strcmp(on_anomaly, "stop") == 0;
  observer->parameter_stats.SetInterval(GivenStatsInterval(entry));
  observer->gpu_events.Set(GivenGpuSettings());
  observer->KeepCapsules(GivenCapsuleSettings(*entry));
  if (GivenSwitch(entry, wire::kEnvKernels)) {
    const char* on_demand = getenv("KINETO_USE_DAEMON");
    observer->op_kernels.Want(on_demand != nullptr && *on_demand != '\0');
  }
  return observer;
}

// Says why, where it is not.
bool IsForThisJob(const NanwatchEntry* entry) {
  char line[256];
  if (entry->interface_version != NANWATCH_INTERFACE_VERSION) {
    entry->say("the observer and libnanwatch.so are of different versions: not watching");
    return false;
  }
  if (!IsBuiltFor(entry->torch_version)) {
    std::snprintf(
        line, sizeof line,
        "this observer is built for torch %d.%d, the job has %.40s: not watching (build one "
        "with nanwatch build-observer --python PY)",
        TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, entry->torch_version);
    entry->say(line);
    return false;
  }
  return true;
}

}  // namespace
}  // namespace nanwatch

extern "C" __attribute__((visibility("default"))) int nanwatch_observer_start(
    const struct NanwatchEntry* entry) {
  using namespace nanwatch;
  try {
    char line[256];
    if (!IsForThisJob(entry)) return 1;
    InitScan(nullptr);
    ReadInTorchThreads();
    Observer* observer = MakeObserver(entry);
    if (observer == nullptr) return 1;
    Observer::Set(observer);
    if (IsLate(*entry)) observer->level.RecordCameLate();
    if (!TurnOn(observer)) {
      std::snprintf(line, sizeof line,
                    "a planted NaN went unseen under torch %.40s: not watching. Please report this",
                    entry->torch_version);
      entry->say(line);
      return 1;
    }
    atexit(&entry_points::OnExit);
    (void)forks::InstallHandlers();  // without them children go unobserved
    // Whoever came in waits for the segment: it is the proof that all has gone well.
    if (IsLate(*entry) && observer->segment.Ensure() == nullptr) return 1;
    observer->PublishLive(wire::LiveState::kWatching);
    observer->python->RunInstallLoop(entry->active, IsLate(*entry));
    return 0;
  } catch (...) {
    *entry->active = 0;
    return 1;
  }
}
