#include "shim/observe/observer.h"

#include <c10/util/intrusive_ptr.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <new>

#include "shim/observe/forks.h"
#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch {
namespace {

// The pid of the process that the current observer belongs to.
std::atomic<int32_t> owner_pid{0};

// "3.11.7"; "" in a program without Python.
const char* PythonVersion() {
  static char version[16];
  using GetVersion = const char* (*)();
  auto* get_version = reinterpret_cast<GetVersion>(dlsym(RTLD_DEFAULT, "Py_GetVersion"));
  if (get_version == nullptr) return "";
  const char* full = get_version();
  for (size_t i = 0; i + 1 < sizeof version && full[i] != ' ' && full[i] != '\0'; ++i) {
    version[i] = full[i];
  }
  return version;
}

}  // namespace

std::atomic<Observer*> Observer::current_{nullptr};

Observer::Observer(const NanwatchEntry* entry_interface, const LevelAtStart& start,
                   PythonBridge* python_door) noexcept
    : bad_values(TorchWeakStorageOps(), gpu_events.clock()),
      poison(gpu_events.clock()),
      level(start),
      measuring(start.measure_share),
      python(python_door),
      entry_(entry_interface),
      active_(entry_interface->active),
      listens_(!IsLate(*entry_interface)) {
  owner_pid.store(getpid(), std::memory_order_relaxed);
}

void Observer::WakeInChild() noexcept {
  // Inactive in its own process: it has stepped down, and stays so.
  if (!forks::TakeTurnToWake()) return;
  Observer* parents = Get();
  if (!parents->self_proven.load(std::memory_order_relaxed)) return;
  const int32_t parent = owner_pid.load(std::memory_order_relaxed);
  // The parent's object is leaked: its locks may be held by threads that do not exist here.
  auto* mine =
      new (std::nothrow) Observer(parents->entry_, parents->level.start(), parents->python);
  if (mine == nullptr) return;
  mine->forked_from_ = parent;
  mine->listens_ = true;
  mine->python->WantWholeStacks(false);
  mine->stops_on_anomaly = parents->stops_on_anomaly;
  mine->parameter_stats.SetInterval(parents->parameter_stats.interval());
  mine->gpu_events.Set(parents->gpu_events.settings());
  if (parents->op_kernels.wanted()) mine->op_kernels.Want(parents->op_kernels.on_demand());
  mine->self_proven.store(true, std::memory_order_relaxed);
  mine->input_tracking.Inherit(parents->input_tracking);
  mine->input_tracking.WatchEverywhere(WatchesEveryOp(mine->level.watched()));
  ThreadStates::AfterFork();
  Set(mine);
  mine->SetActive(true);
}

Emitter* Observer::EnsureEmitter() noexcept {
  Emitter* ready = emitter();
  if (ready != nullptr) return ready;
  std::lock_guard<std::mutex> lock(segment_mutex_);
  if (emitter() != nullptr || segment_failed_) return emitter();
  SegmentOptions options;
  options.level = level.asked();
  options.torch_version = entry_->torch_version;
  options.python_version = PythonVersion();
  options.forked_from = forked_from_;
  // A forked child is watched from its first step on.
  options.late = IsLate(*entry_) && forked_from_ == 0;
  options.sweeps = true;
  if (IsLate(*entry_)) options.directory = entry_->late_directory;
  SegmentReport report;
  Segment* segment = Segment::Create(options, report);
  if (report.message[0] != '\0') entry_->say(report.message);
  auto* made = segment != nullptr ? new (std::nothrow) Emitter(*segment) : nullptr;
  if (made == nullptr) {
    segment_failed_ = true;
    *active_ = 0;
    return nullptr;
  }
  segment_ = segment;
  if (listens_) level.Listen(segment->control());
  emitter_.store(made, std::memory_order_release);
  return made;
}

void Observer::Listen() noexcept {
  const std::lock_guard<std::mutex> lock(segment_mutex_);
  listens_ = true;
  if (segment_ != nullptr) level.Listen(segment_->control());
}

bool IsLate(const NanwatchEntry& entry) noexcept {
  // An older libnanwatch.so says nothing of it.
  return entry.struct_bytes >= offsetof(NanwatchEntry, late_directory) + sizeof(const char*) &&
         entry.late_level != nullptr;
}

void Observer::PublishLive(wire::LiveState state) noexcept {
  Emitter* ready = emitter();
  if (ready == nullptr) return;
  const ThreadCounters sum = ThreadStates::Sum();
  LiveFacts facts;
  facts.ops_seen = sum.ops_seen;
  facts.tensors_checked = sum.tensors_checked;
  facts.bytes_checked = sum.bytes_checked;
  facts.values_bad = sum.values_bad;
  for (int i = 0; i < wire::kUncheckedReasons; ++i) facts.unchecked[i] = sum.unchecked[i];
  steps.StepsWatched(facts.steps_watched);
  facts.overhead = measuring.Read();
  facts.state = state;
  facts.level = level.asked();
  facts.gpus = gpu_events.gpus();
  facts.control_applied = level.applied();
  facts.clocks = steps.Now();
  facts.loss_known = steps.LastLoss(&facts.loss);
  ready->PublishLive(facts);
}

void Observer::SettlePoison() noexcept {
  // On the CPU whoever made it so looks for the end of it, too.
  if (Blind() && !gpu_events.On()) return;
  if (poison.Settle(python->names()) != Poison::Change::kEntered) return;
  bad_values.Reset();
  input_tracking.Disarm();
}

uint32_t Observer::NameOf(const OpTraits& op) noexcept {
  auto& name_id = const_cast<OpTraits&>(op).name_id;
  const uint32_t known = name_id.load(std::memory_order_relaxed);
  Emitter* ready = emitter();
  if (known != 0 || ready == nullptr || op.name == nullptr) return known;
  const uint32_t made = ready->Intern(op.name);
  name_id.store(made, std::memory_order_relaxed);
  return made;
}

WeakStorage HoldWeakly(const c10::StorageImpl* storage) noexcept {
  auto* mutable_storage = const_cast<c10::StorageImpl*>(storage);
  c10::raw::weak_intrusive_ptr::incref(mutable_storage);
  return {storage, mutable_storage};
}

WeakStorageOps TorchWeakStorageOps() noexcept {
  return {[](void* handle) noexcept {
            return c10::raw::intrusive_ptr::use_count(static_cast<c10::StorageImpl*>(handle)) == 0;
          },
          [](void* handle) noexcept {
            c10::raw::weak_intrusive_ptr::decref(static_cast<c10::StorageImpl*>(handle));
          }};
}

}  // namespace nanwatch
