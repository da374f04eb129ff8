// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/daemon.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <utility>

#include "daemon/base/directories.h"
#include "daemon/ingest/launcher_files.h"
#include "daemon/ingest/segment_directory_watch.h"
#include "daemon/loop/dead_places.h"
#include "daemon/loop/instance_lock.h"
#include "daemon/loop/open_store.h"
#include "daemon/loop/segment_intake.h"
#include "daemon/store/database_file.h"
#include "daemon/store/store.h"

namespace nanwatch {
namespace {

constexpr uint64_t kMsNs = 1'000'000;
// For lost inotify events, and for files that somebody removed.
constexpr uint64_t kRescanEveryNs = 2'000 * kMsNs;
constexpr uint64_t kRetireEveryNs = 600'000 * kMsNs;
// A file that gives nothing but errors for so long is examined.
constexpr uint64_t kIoPatienceNs = 10'000 * kMsNs;
constexpr uint64_t kExamineEveryNs = 60'000 * kMsNs;
// At most one database is moved aside in so long.
constexpr uint64_t kAnewEveryNs = 600'000 * kMsNs;
// Every page of a database is read at most once in so long.
constexpr uint64_t kCheckEveryNs = 10'000 * kMsNs;
constexpr uint64_t kReportEveryNs = 60'000 * kMsNs;

}  // namespace

struct Daemon::Impl {
  Impl(DaemonOptions given, Diagnosis diagnosis, const Clock& the_clock, Listener& the_listener,
       InstanceLock held, InstanceLock held_state, SegmentDirectoryWatch watching, Store opened)
      : options(std::move(given)),
        clock(the_clock),
        listener(the_listener),
        lock(std::move(held)),
        state_lock(std::move(held_state)),
        watch(std::move(watching)),
        store(std::move(opened)),
        intake(options.segment_dir, clock, listener),
        verdicts(std::move(diagnosis), clock, listener, options.judge_patience_ns),
        active_at_ns(clock.monotonic_ns()) {}

  Status MakeDirectoryAnew();
  Status HoldStateLock();
  void RemoveRemains();
  void LetGoOfStore();
  void LeaveDatabase(const std::string& why);
  void OpenStoreAnew();
  void Examine(const Status& why);
  void ReopenStore();
  void LeaveIfDamaged(const Status& why);
  void ReportNotAnew(const std::string& sentence);
  Status LookAround();
  void Drain();
  void RenewVerdicts();
  void Retire();
  void Mend(const Status& why);
  template <typename Part>
  void WithMemory(const Part& part);
  [[nodiscard]] int TimeoutMs() const;
  [[nodiscard]] bool IsIdle() const;

  DaemonOptions options;
  const Clock& clock;
  Listener& listener;
  InstanceLock lock;
  InstanceLock state_lock;
  SegmentDirectoryWatch watch;
  Store store;
  SegmentIntake intake;
  JobVerdicts verdicts;
  uint64_t rescan_due_ns = 0;  // monotonic, like all here
  uint64_t retire_due_ns = 0;
  uint64_t active_at_ns;
  uint64_t anew_allowed_at_ns = 0;
  uint64_t examine_due_ns = 0;
  uint64_t check_due_ns = 0;
  uint64_t reported_not_anew_at_ns = 0;
  bool first_round = true;
  bool has_store = true;  // false: segments wait until a new database could be created
};

// A logout or a tidy administrator removed the directory or the lock in it. Jobs make their
// segments anew.
Status Daemon::Impl::MakeDirectoryAnew() {
  if (Status made = EnsureSegmentDirectory(options.segment_dir); !made.ok()) return made;
  // Taking the very file again and closing the first descriptor would give the lock away.
  if (!lock.StillInPlace()) {
    Result<InstanceLock> taken = TakeDaemonLock(options.segment_dir, clock);
    if (!taken.ok()) return taken.status();
    lock = *std::move(taken);
  }
  Result<SegmentDirectoryWatch> watching = SegmentDirectoryWatch::Open(options.segment_dir);
  if (!watching.ok()) return watching.status();
  watch = *std::move(watching);
  listener.Remark(options.segment_dir + " was removed; it was created again");
  return Status();
}

// What is open has lost its name: nothing more is written to it, and no judgment of it is kept.
void Daemon::Impl::LetGoOfStore() {
  verdicts.ForgetStore();
  has_store = false;
}

// Only for a database that is proven to be of no use. Where the next one is of none either, the
// disk or the memory is at fault, and moving more of them aside would only cost what they hold.
void Daemon::Impl::LeaveDatabase(const std::string& why) {
  const uint64_t now_ns = clock.monotonic_ns();
  if (now_ns < anew_allowed_at_ns) {
    ReportNotAnew(why +
                  ": it stays, because another one was moved aside a moment ago. Check the disk"
                  " of " +
                  options.state_dir + ", or set NANWATCH_STATE_DIR to another one");
    return;
  }
  verdicts.DrainJudge();  // it reads the file by its name
  const Result<std::string> aside = MoveAside(DatabasePath(options.state_dir));
  if (!aside.ok()) {
    ReportNotAnew(why + "; " + aside.status().message());
    return;
  }
  anew_allowed_at_ns = now_ns + kAnewEveryNs;
  listener.Trouble(why + ": it was moved to " + *aside + ", and a new one is created");
  LetGoOfStore();
  OpenStoreAnew();
}

// Segments are opened again too: what they still hold of their first findings and totals goes into
// the new database.
void Daemon::Impl::OpenStoreAnew() {
  const std::string problem = "there is no database";
  std::string note;
  if (Status made = EnsureStateDirectory(options.state_dir, &note); !made.ok())
    return ReportNotAnew(problem + "; " + made.message());
  if (!note.empty()) listener.Remark(note);
  if (Status held = HoldStateLock(); !held.ok())
    return ReportNotAnew(problem + "; " + held.message());
  const uint64_t now_ns = clock.monotonic_ns();
  const bool may_move = now_ns >= anew_allowed_at_ns;
  Result<Store> opened =
      OpenStore(options, may_move ? Store::WhenDamaged::kMoveAside : Store::WhenDamaged::kLeave,
                clock, listener);
  if (!opened.ok())
    return ReportNotAnew("a new database cannot be created: " + opened.status().message());
  if (!opened->opening_note().empty()) {
    anew_allowed_at_ns = now_ns + kAnewEveryNs;
    listener.Trouble(opened->opening_note());
  }
  store = *std::move(opened);
  has_store = true;
  intake.CloseAll();
}

// Errors that last: of this file, of everything here, or of what was to be written.
void Daemon::Impl::Examine(const Status& why) {
  const uint64_t now_ns = clock.monotonic_ns();
  if (now_ns < examine_due_ns) return;
  examine_due_ns = now_ns + kExamineEveryNs;
  switch (ExamineDatabase(DatabasePath(options.state_dir))) {
    case DatabaseHealth::kUnusable:
      return LeaveDatabase("the database gives nothing but errors (" + why.message() + ")");
    case DatabaseHealth::kUnknown:
      return ReportNotAnew("other files in " + options.state_dir + " cannot be written either (" +
                           why.message() +
                           "): findings wait in their segments. Check the"
                           " disk, or set NANWATCH_STATE_DIR to another one");
    case DatabaseHealth::kUsable:
      break;
  }
  ReopenStore();
}

// Only what is open of it is at fault.
void Daemon::Impl::ReopenStore() {
  Result<Store> opened = OpenStore(options, Store::WhenDamaged::kLeave, clock, listener);
  if (opened.ok()) store = *std::move(opened);
}

// A connection may call a database damaged of which every page is sound.
void Daemon::Impl::LeaveIfDamaged(const Status& why) {
  if (clock.monotonic_ns() < check_due_ns) return;
  check_due_ns = clock.monotonic_ns() + kCheckEveryNs;
  const Status sound = CheckDatabase(DatabasePath(options.state_dir));
  const std::string damaged = "the database is damaged (" + why.message() + ")";
  if (sound.kind() == ErrorKind::kCorrupt) return LeaveDatabase(damaged);
  if (!sound.ok()) return ReportNotAnew(damaged + "; it cannot be checked: " + sound.message());
  ReportNotAnew(damaged + "; every page of it is sound: it is opened again");
  ReopenStore();
}

// Often tried, said once a minute.
void Daemon::Impl::ReportNotAnew(const std::string& sentence) {
  const uint64_t now_ns = clock.monotonic_ns();
  if (reported_not_anew_at_ns != 0 && now_ns - reported_not_anew_at_ns < kReportEveryNs) return;
  reported_not_anew_at_ns = now_ns;
  listener.Trouble(sentence);
}

// The directory may be a new one.
Status Daemon::Impl::HoldStateLock() {
  if (state_lock.StillInPlace()) return Status();
  Result<InstanceLock> taken = TakeStateLock(options.state_dir, clock);
  if (!taken.ok()) return taken.status();
  state_lock = *std::move(taken);
  return Status();
}

// Runs without a process, and what containers that ended have left.
void Daemon::Impl::RemoveRemains() {
  intake.EndVanishedRuns(store);
  std::vector<std::string> gone;
  if (!options.places_prefix.empty())
    gone = RemoveDeadPlaces(options.places_prefix, options.segment_dir, clock);
  if (RemoveDeadForeignSegments(options.segment_dir, clock) > 0)
    gone.push_back("some segments in " + options.segment_dir);
  for (const std::string& path : gone)
    listener.Remark(path +
                    " of a container that ended was removed: nothing was written to it for a day");
}

Status Daemon::Impl::LookAround() {
  const uint64_t now_ns = clock.monotonic_ns();
  const auto change = watch.TakeChange();
  const bool due = now_ns >= rescan_due_ns;
  if (change == SegmentDirectoryWatch::Change::kNone && !due) return Status();
  if (change == SegmentDirectoryWatch::Change::kDirectoryGone || !lock.StillInPlace()) {
    if (Status made = MakeDirectoryAnew(); !made.ok()) return made;
  }
  if (due && has_store && access(DatabasePath(options.state_dir).c_str(), F_OK) != 0 &&
      (errno == ENOENT || errno == ENOTDIR)) {
    listener.Trouble("the database in " + options.state_dir + " was removed: a new one is created");
    LetGoOfStore();
  }
  if (due && !has_store) OpenStoreAnew();
  rescan_due_ns = now_ns + kRescanEveryNs;
  if (!has_store) return Status();
  Mend(intake.Rescan(store));
  if (std::exchange(first_round, false)) RemoveRemains();
  return Status();
}

void Daemon::Impl::Drain() {
  if (!has_store) return;
  const Status drained = intake.Drain(store);
  Mend(drained);
  if (!has_store) return;
  const uint64_t now_ns = clock.monotonic_ns();
  const bool due = now_ns >= retire_due_ns;
  if (due && retire_due_ns != 0) RemoveRemains();
  if (drained.kind() == ErrorKind::kFull || due) {
    retire_due_ns = now_ns + kRetireEveryNs;
    Retire();
  }
}

// A database that is full cannot be made smaller either at times; the intake reports that.
void Daemon::Impl::Retire() {
  const Status retired = store.Retire();
  if (!retired.ok() && retired.kind() != ErrorKind::kFull && retired.kind() != ErrorKind::kCorrupt)
    listener.Trouble("old runs cannot be removed from the database: " + retired.message());
  Mend(retired);
}

void Daemon::Impl::RenewVerdicts() {
  if (!has_store) return;
  for (const std::string& job : intake.TakeTouchedJobs()) verdicts.Touch(job);
  Mend(verdicts.Renew(store, /*all=*/false));
}

// What there is no memory for now is done in a later round.
template <typename Part>
void Daemon::Impl::WithMemory(const Part& part) try {
  part();
} catch (const std::bad_alloc&) {
  try {
    ReportNotAnew("the daemon has no memory for what it has to do: it tries again");
  } catch (const std::bad_alloc&) {
  }
}

// Whoever met the error has reported it, where nothing is done about it here.
void Daemon::Impl::Mend(const Status& why) {
  if (why.kind() == ErrorKind::kCorrupt) return LeaveIfDamaged(why);
  if (why.kind() != ErrorKind::kIo && why.kind() != ErrorKind::kInvalid) return;
  const uint64_t since_ns = intake.failing_since_ns();
  if (since_ns != 0 && clock.monotonic_ns() - since_ns >= kIoPatienceNs) Examine(why);
}

// Without a database nothing is opened: whatever has a segment waits for one.
bool Daemon::Impl::IsIdle() const {
  if (has_store) return intake.open_segments() == 0 && !verdicts.has_pending();
  const auto listing = ListSegments(options.segment_dir);
  return listing.ok() && listing->segments.empty();
}

int Daemon::Impl::TimeoutMs() const {
  const uint64_t now_ns = clock.monotonic_ns();
  uint64_t wake_ns = rescan_due_ns;
  if (has_store) {
    if (intake.open_segments() > 0) wake_ns = std::min(wake_ns, now_ns + kDrainEveryNs);
    wake_ns = std::min(wake_ns, verdicts.next_due_ns());
  }
  if (options.idle_exit_ns > 0 && IsIdle())
    wake_ns = std::min(wake_ns, active_at_ns + options.idle_exit_ns);
  return wake_ns <= now_ns ? 0 : static_cast<int>((wake_ns - now_ns + kMsNs - 1) / kMsNs);
}

// ---- Daemon

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Daemon::Daemon(Daemon&&) noexcept = default;
Daemon::~Daemon() = default;

Store& Daemon::store() { return impl_->store; }
SegmentIntake& Daemon::intake() { return impl_->intake; }
int Daemon::TimeoutMs() const { return impl_->TimeoutMs(); }

Result<Daemon> Daemon::Start(DaemonOptions options, Diagnosis diagnosis, const Clock& clock,
                             Listener& listener) {
  if (Status made = EnsureSegmentDirectory(options.segment_dir); !made.ok()) return made;
  std::string note;
  if (Status made = EnsureStateDirectory(options.state_dir, &note); !made.ok()) return made;
  if (!note.empty()) listener.Remark(note);
  Result<InstanceLock> lock = TakeDaemonLock(options.segment_dir, clock);
  if (!lock.ok()) return lock.status();
  Result<InstanceLock> state_lock = TakeStateLock(options.state_dir, clock);
  if (!state_lock.ok()) return state_lock.status();
  Result<SegmentDirectoryWatch> watch = SegmentDirectoryWatch::Open(options.segment_dir);
  if (!watch.ok()) return watch.status();
  Result<Store> store = OpenStore(options, Store::WhenDamaged::kMoveAside, clock, listener);
  if (!store.ok()) return store.status();
  const bool is_new = !store->opening_note().empty();
  if (is_new) listener.Trouble(store->opening_note());
  auto impl = std::make_unique<Impl>(std::move(options), std::move(diagnosis), clock, listener,
                                     *std::move(lock), *std::move(state_lock), *std::move(watch),
                                     *std::move(store));
  if (is_new) impl->anew_allowed_at_ns = clock.monotonic_ns() + kAnewEveryNs;
  return Daemon(std::move(impl));
}

Status Daemon::Tick() {
  Impl& impl = *impl_;
  Status looked;
  impl.WithMemory([&] { looked = impl.LookAround(); });
  if (!looked.ok()) return looked;
  impl.WithMemory([&] { impl.Drain(); });
  impl.WithMemory([&] { impl.RenewVerdicts(); });
  if (!impl_->IsIdle()) impl_->active_at_ns = impl_->clock.monotonic_ns();
  return Status();
}

Result<Daemon::Left> Daemon::Run(int stop_fd) {
  while (true) {
    if (Status ticked = Tick(); !ticked.ok()) return ticked;
    Impl& impl = *impl_;
    const uint64_t now_ns = impl.clock.monotonic_ns();
    if (impl.options.idle_exit_ns > 0 && impl.IsIdle() &&
        now_ns - impl.active_at_ns >= impl.options.idle_exit_ns) {
      const std::vector<LauncherFile> launchers = ListLauncherFiles(impl.options.segment_dir);
      const bool any_lives = std::any_of(launchers.begin(), launchers.end(),
                                         [](const LauncherFile& file) { return file.is_held; });
      if (!any_lives) return Left::kIdle;
      impl.active_at_ns = now_ns;
    }
    pollfd wait_for[] = {{impl.watch.fd(), POLLIN, 0}, {stop_fd, POLLIN, 0}};
    poll(wait_for, 2, TimeoutMs());
    if ((wait_for[1].revents & POLLIN) != 0) return Left::kStopAsked;
  }
}

void Daemon::Finish() {
  if (!impl_->has_store) return;
  (void)impl_->intake.Rescan(impl_->store);
  (void)impl_->intake.DrainAll(impl_->store);  // what cannot be written stays in the segments
  for (const std::string& job : impl_->intake.TakeTouchedJobs()) impl_->verdicts.Touch(job);
  (void)impl_->verdicts.Renew(impl_->store, /*all=*/true);
}

}  // namespace nanwatch
