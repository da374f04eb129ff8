// SPDX-License-Identifier: Apache-2.0
#include "tools/late_load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "daemon/base/unique_fd.h"
#include "proto/wire/naming.h"
#include "shim/entry/attach.h"
#include "tools/daemon_start.h"
#include "tools/inject/injection.h"
#include "tools/python_probe.h"
#include "tools/remote_exec.h"
#include "tools/terminal.h"
extern "C" {
#include "shim/entry/torch_version.h"
}

namespace nanwatch {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
constexpr int kLookEveryMs = 5;
constexpr char kIdle[] = "idle";
constexpr char kNoSafePoint[] = "no_safe_point";
constexpr char kRemoteExecRefused[] = "remote_exec_refused";

// A file next to the segments, removed when we exit. The process sees this directory: that was
// checked.
class PassingFile {
 public:
  PassingFile(std::string path, const std::string& text) : path_(std::move(path)) {
    const UniqueFd fd(
        open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    made_ = fd.valid() && WriteAll(fd.get(), text);
  }
  ~PassingFile() {
    if (made_) unlink(path_.c_str());
  }
  PassingFile(const PassingFile&) = delete;
  PassingFile& operator=(const PassingFile&) = delete;

  // Somebody else takes it away.
  void Leave() { made_ = false; }
  [[nodiscard]] bool made() const { return made_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

LateLoadResult Failed(LateLoadResult result, const char* reason, std::string problem) {
  result.reason = reason;
  result.problem = std::move(problem);
  return result;
}

// By the function that the library itself uses in the process.
std::string TorchVersionOf(const ProcessFacts& process) {
  torch_version version;
  const std::string path = "/proc/" + std::to_string(process.pid) + "/root" + process.libtorch;
  if (process.libtorch.empty() || !torch_version_of(path.c_str(), &version)) return "";
  return version.full;
}

// The segments of processes of this number: another one may have had it before.
std::set<std::string> SegmentsOf(const std::string& segment_dir, int pid) {
  const std::string begin = wire::kSegmentPrefix + std::to_string(pid) + "-";
  std::set<std::string> segments;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(segment_dir, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(begin) && name.ends_with(wire::kSegmentSuffix)) segments.insert(name);
  }
  return segments;
}

// All that came since are of the process that runs now; a daemon may have removed others.
bool HasNew(const std::set<std::string>& segments, const std::set<std::string>& before) {
  return !std::includes(before.begin(), before.end(), segments.begin(), segments.end());
}

// What came into the file of answers.
struct Answers {
  int attach = -1;    // what nanwatch_entry_attach answered, -1: nothing yet
  bool off = false;   // the process is not going to be watched
  std::string error;  // of the script
  std::string said;   // the library's lines, joined
};

Answers ReadAnswers(const std::string& path) {
  Answers answers;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kSaid = "nanwatch: ";
    if (line.starts_with(kSaid)) {
      answers.said += (answers.said.empty() ? "" : "; ") + line.substr(kSaid.size());
    } else if (line.starts_with("attach ")) {
      std::from_chars(line.data() + 7, line.data() + line.size(), answers.attach);
    } else if (line.starts_with("error ")) {
      answers.error = line.substr(6);
    } else if (line == "off") {
      answers.off = true;
    }
  }
  return answers;
}

// Why nanwatch_entry_attach did not begin; "" when it did.
std::string ExplainAttach(int answer, const std::string& name) {
  switch (answer) {
    case NANWATCH_ATTACH_BEGUN:
      return "";
    case NANWATCH_ATTACH_SWITCHED_OFF:
      return name + " was started with NANWATCH=0, which switches nanwatch off";
    case NANWATCH_ATTACH_PRIVILEGED:
      return name + " runs with elevated privileges, and nanwatch does not enter such processes";
    case NANWATCH_ATTACH_ALREADY:
      return name + " already has the library: somebody else attached at the same time; try again";
    case NANWATCH_ATTACH_NO_TORCH:
      return name + " has not loaded torch";
    default:
      return name +
             " now has the library, which could not start its thread (out of memory, or a "
             "thread limit)";
  }
}

struct Loading {
  const ProcessFacts& process;
  const LateLoadRequest& request;
  const EnvironmentBlock& outside;
  const HostFacts& host;
  std::string name;
  SteadyClock::time_point deadline;
  LateCall call;
  std::set<std::string> segments_before;

  [[nodiscard]] Milliseconds Left() const {
    return std::max(Milliseconds(1),
                    std::chrono::duration_cast<Milliseconds>(deadline - SteadyClock::now()));
  }
  // Where a hook may follow, Python need not have all the time.
  [[nodiscard]] SteadyClock::time_point PatienceWithPython() const {
    constexpr Milliseconds kEnough{5000};
    return MayGoOn() ? std::min(deadline, SteadyClock::now() + std::min(kEnough, request.limit / 2))
                     : deadline;
  }
  [[nodiscard]] bool MayGoOn() const { return request.inject && host.may_write_code; }
  [[nodiscard]] std::string Seconds() const {
    return fmt::format("{:g} s", std::chrono::duration<double>(request.limit).count());
  }
};

// What came of it: `problem` kept the library out, or, where that is null, it answered.
LateLoadResult Conclude(const Loading& loading, LateLoadResult result, const std::string* problem,
                        int answer) {
  const std::string refusal = problem != nullptr
                                  ? "the library is not in " + loading.name + ": " + *problem
                                  : ExplainAttach(answer, loading.name);
  return refusal.empty() ? result : Failed(result, "load_failed", refusal);
}

LateLoadResult ByInjection(const Loading& loading, LateLoadResult result) {
  const InjectionResult done = Inject({
      .pid = loading.request.pid,
      .free_threaded = loading.process.python.ends_with('t'),
      .call = loading.call,
      .limit = loading.Left(),
      .on_wait =
          [&] {
            Say(loading.name +
                " has not yet reached a point where it can load the library: waiting");
          },
  });
  result.took = std::chrono::duration_cast<Milliseconds>(done.took);
  result.stops = done.stops;
  result.stopped_max = done.stopped_max;
  if (!done.called && !done.in_time) {
    return Failed(
        result, kNoSafePoint,
        loading.name + " reached no point within " + loading.Seconds() +
            " where the library can be loaded: it waits in the kernel or in one long call (a hung "
            "collective?). It is unchanged: try again later, or with a longer --wait");
  }
  return Conclude(loading, std::move(result), done.called ? nullptr : &done.problem, done.answer);
}

LateLoadResult ByRemoteExec(const Loading& loading, LateLoadResult result) {
  const std::string path = loading.call.answers + ".py";
  PassingFile script(path, RemoteScript(loading.call, path));
  if (!script.made()) return Failed(result, "load_failed", "cannot create the file " + path);
  const std::string refusal = AskRemoteExec(loading.process.executable, loading.request.pid, path,
                                            loading.outside, loading.Left());
  if (!refusal.empty()) {
    return Failed(result, kRemoteExecRefused,
                  loading.name + " could not be asked to load the library, " + refusal +
                      "; --inject loads it through a hook on a call of its Python");
  }
  Answers answers;
  const SteadyClock::time_point patience = loading.PatienceWithPython();
  while (answers.attach < 0 && answers.error.empty()) {
    if (SteadyClock::now() >= patience) {
      script.Leave();  // it is still going to be run, and its absence would be complained about
      return Failed(
          result, kNoSafePoint,
          loading.name +
              " was asked to load the library, but its main thread has run no Python for " +
              loading.Seconds() +
              " (it waits in a call: a hung collective, another thread that trains?). It loads the "
              "library as soon as it does; attach again then, or use --inject, which can use any "
              "of "
              "its threads");
    }
    poll(nullptr, 0, kLookEveryMs);
    answers = ReadAnswers(loading.call.answers);
  }
  script.Leave();
  return Conclude(loading, std::move(result), answers.error.empty() ? nullptr : &answers.error,
                  answers.attach);
}

// The library is loaded: its observer starts, or says why it stays off.
LateLoadResult AwaitSegment(const Loading& loading, LateLoadResult result) {
  for (;;) {
    const Answers answers = ReadAnswers(loading.call.answers);
    result.said = answers.said;
    result.watched =
        HasNew(SegmentsOf(loading.call.directory, loading.request.pid), loading.segments_before);
    if (result.watched) return result;
    if (answers.off) {
      return Failed(
          result, "not_watched",
          loading.name + " now has the library, but is not watched: " +
              (answers.said.empty() ? "it is a torch worker that never trains" : answers.said));
    }
    if (access(("/proc/" + std::to_string(loading.request.pid)).c_str(), F_OK) != 0)
      return Failed(result, "ended", loading.name + " ended in the meantime");
    if (SteadyClock::now() >= loading.deadline) {
      return Failed(result, "not_ready",
                    loading.name + " now has the library, but its observer did not start within " +
                        loading.Seconds() + ": attach again in a moment");
    }
    poll(nullptr, 0, kLookEveryMs);
  }
}

}  // namespace

LateLoadResult LoadLate(const LateLoadRequest& request, const Places& places,
                        const Installation& installation, const EnvironmentBlock& outside) {
  LateLoadResult result;
  if (places.segment_dir.empty())
    return Failed(result, "directory", places.segment_status.message());
  const ProcessFacts process =
      ReadProcessFacts(request.pid, installation.library, places.segment_dir);
  const HostFacts host = ReadHostFacts();
  const LateLoadPlan plan = PlanLateLoad(process, host,
                                         {.inject = request.inject,
                                          .torch_version = TorchVersionOf(process),
                                          .observer_minors = ObserverMinors(installation)});
  if (plan.how == LateLoad::kNone) return Failed(result, plan.reason.c_str(), plan.problem);
  if (const Status made = EnsureSegmentDirectory(places.segment_dir); !made.ok())
    return Failed(result, "directory", made.message());
  if (!RunningDaemon(places.segment_dir).has_value()) {
    const std::string failure = StartDaemon(installation, outside, places.segment_dir);
    if (!failure.empty()) Say("the daemon could not be started: " + failure);
  }

  PassingFile answers(places.segment_dir + "/attach-" + std::to_string(request.pid) + "-" +
                          std::to_string(getpid()),
                      "");
  if (!answers.made())
    return Failed(result, "directory", "cannot create the file " + answers.path());
  const Loading loading = {.process = process,
                           .request = request,
                           .outside = outside,
                           .host = host,
                           .name = "process " + std::to_string(request.pid),
                           .deadline = SteadyClock::now() + request.limit,
                           .call = {.library = installation.library,
                                    .level = kIdle,
                                    .directory = places.segment_dir,
                                    .answers = answers.path()},
                           .segments_before = SegmentsOf(places.segment_dir, request.pid)};
  result.how = plan.how;
  if (plan.how == LateLoad::kRemoteExec) result = ByRemoteExec(loading, std::move(result));
  const bool in_vain = result.reason == kRemoteExecRefused || result.reason == kNoSafePoint;
  if (plan.how == LateLoad::kInject || (in_vain && loading.MayGoOn())) {
    LateLoadResult anew;
    anew.how = LateLoad::kInject;
    result = ByInjection(loading, std::move(anew));
  }
  return result.reason.empty() ? AwaitSegment(loading, std::move(result)) : result;
}

}  // namespace nanwatch
