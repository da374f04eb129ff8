// SPDX-License-Identifier: Apache-2.0
// nanwatchd: parses its command line, detaches if asked to, and lets the loop run. What it does is
// in loop/.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/base/clock.h"
#include "daemon/base/command_line.h"
#include "daemon/base/directories.h"
#include "daemon/base/unique_fd.h"
#include "daemon/config/configuration.h"
#include "daemon/explain/explain.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/event_log.h"
#include "daemon/loop/human_log.h"
#include "daemon/loop/instance_lock.h"
#include "daemon/loop/listener_list.h"
#include "proto/wire/naming.h"
#include "proto/wire/place.h"

namespace nanwatch {
namespace {

struct CommandLine {
  std::string segment_dir;
  std::string state_dir;
  uint32_t idle_exit_seconds = 0;
  bool detach = false;
  bool outbox = false;
};

struct Places {
  std::string segment_dir;
  StateDirectory state;
};

constexpr int kWrongUse = 2;  // exit status, as of `nanwatch`

int Refuse(const Status& why) {
  std::fprintf(stderr, "nanwatchd: %s\n", why.message().c_str());
  return 1;
}

// Flags win over the environment, and that over configuration files.
Result<Places> FindPlaces(const CommandLine& asked) {
  const Environment environment = [&](const char* name) {
    if (std::string_view(name) == "NANWATCH_DIR" && !asked.segment_dir.empty())
      return asked.segment_dir;
    if (std::string_view(name) == "NANWATCH_STATE_DIR" && !asked.state_dir.empty())
      return asked.state_dir;
    return ProcessEnvironment()(name);
  };
  Result<std::string> segments = SegmentDirectoryPath(environment);
  if (!segments.ok()) return segments.status();
  Result<StateDirectory> state = StateDirectoryPath(environment);
  if (!state.ok()) return state.status();
  return Places{*std::move(segments), *std::move(state)};
}

// Another daemon that is about to leave gives its locks back one after the other.
constexpr int kStateLockTries = 100;
constexpr useconds_t kStateLockWaitUs = 20'000;

// Why the state directory cannot be had, or ok. Makes it.
Status CheckState(Places& places) {
  std::string note;
  if (Status made = EnsureStateDirectory(places.state.path, &note); !made.ok()) return made;
  if (!note.empty()) places.state.note += (places.state.note.empty() ? "" : "; ") + note;
  // The other daemon may be the one of our segments: Daemon::Start says so.
  if (!InstanceLock::Probe(DaemonLockPath(places.segment_dir), "").ok()) return Status();
  Status held;
  for (int i = 0; i < kStateLockTries; ++i) {
    held = InstanceLock::Probe(StateLockPath(places.state.path),
                               "writes the database in " + places.state.path);
    if (held.ok()) return held;
    usleep(kStateLockWaitUs);
  }
  return held;
}

// A state directory that cannot be had costs history, not the daemon: the database is then beside
// the segments. What was kept there meanwhile stays, under another name, once it is not needed.
Status ChooseState(Places& places, bool& beside) {
  const std::string path = StateBesideSegments(places.segment_dir);
  beside = false;
  const Status problem = CheckState(places);
  if (problem.ok()) {
    const std::string kept = path + ".before";
    if (access(DatabasePath(path).c_str(), F_OK) != 0 || path == places.state.path ||
        !InstanceLock::Probe(StateLockPath(path), "").ok())
      return problem;
    std::error_code error;
    std::filesystem::remove_all(kept, error);
    std::filesystem::rename(path, kept, error);
    if (!error) {
      places.state.note = "runs from the time when the database was beside the segments are in " +
                          kept + ": '" + wire::kEnvStateDir + "=" + kept +
                          " nanwatch ps' lists them";
    }
    return problem;
  }
  beside = true;
  if (Status made = EnsureSegmentDirectory(places.segment_dir); !made.ok()) return made;
  std::string note;
  if (Status made = EnsureStateDirectory(path, &note); !made.ok()) return problem;
  places.state = {path, problem.message() + ": database and logs are beside the segments, in " +
                            path + ", until the next boot"};
  return Status();
}

// The preload library does nothing in this process; whatever we might start one day shall not have
// it.
void StripPreload() {
  const std::string preload = ProcessEnvironment()("LD_PRELOAD");
  std::string kept;
  for (size_t at = 0; at < preload.size();) {
    const size_t end = std::min(preload.find_first_of(": ", at), preload.size());
    const std::string_view entry(preload.data() + at, end - at);
    const std::string_view file = entry.substr(entry.find_last_of('/') + 1);
    if (!entry.empty() && file != "libnanwatch.so")
      kept += (kept.empty() ? "" : ":") + std::string(entry);
    at = end + 1;
  }
  if (kept.empty()) {
    unsetenv("LD_PRELOAD");
  } else {
    setenv("LD_PRELOAD", kept.c_str(), 1);
  }
}

// Each live segment takes a descriptor; the usual soft limit is 1024.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 16384);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Blocked, so that they arrive at the descriptor only.
UniqueFd TakeSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // the write fails instead
  return UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

// True when a signal asks us to leave; SIGHUP reopens the logs.
bool StopAsked(int signals, Log& human_log, Log& event_log) {
  signalfd_siginfo info{};
  bool stop = false;
  while (read(signals, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGHUP) {
      human_log.Reopen();
      event_log.Reopen();
    } else {
      stop = true;
    }
  }
  return stop;
}

// ---- detaching

// The parent's half: passes on what the background process says until it is ready or has failed.
int AwaitBackground(int words) {
  std::string text;
  char piece[512];
  for (ssize_t got = read(words, piece, sizeof piece); got > 0;
       got = read(words, piece, sizeof piece)) {
    text.append(piece, static_cast<size_t>(got));
    if (text.find('\0') != std::string::npos) break;
  }
  const bool ready = !text.empty() && text.back() == '\0';
  if (ready) text.pop_back();
  std::fputs(text.c_str(), stderr);
  if (!ready && text.empty())
    std::fputs("nanwatchd: the background process ended without an error message\n", stderr);
  return ready ? 0 : 1;
}

// The background process's half: a session of its own, words to the parent until LetGo.
void EnterBackground(int words) {
  setsid();
  (void)!chdir("/");
  const UniqueFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  dup2(nothing.get(), STDIN_FILENO);
  dup2(nothing.get(), STDOUT_FILENO);
  dup2(words, STDERR_FILENO);
}

// Readiness is one NUL byte.
void LetGo() {
  (void)!write(STDERR_FILENO, "", 1);
  const UniqueFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  dup2(nothing.get(), STDERR_FILENO);
}

// ---- serving

int Serve(const CommandLine& asked) {
  Result<Places> places = FindPlaces(asked);
  if (!places.ok()) return Refuse(places.status());
  const UniqueFd signals = TakeSignals();
  RaiseDescriptorLimit();
  bool beside = false;
  if (Status chosen = ChooseState(*places, beside); !chosen.ok()) return Refuse(chosen);

  const SystemClock clock;
  const std::unique_ptr<Log> human_log =
      MakeHumanLog(HumanLogPath(places->state.path), /*to_stderr=*/!asked.detach);
  const std::unique_ptr<Log> event_log = MakeEventLog(
      EventLogPath(places->state.path), clock, beside ? kBesideEventBytesMax : kEventFileBytesMax);
  ListenerList listeners({human_log.get(), event_log.get()});
  Result<Daemon> daemon =
      Daemon::Start({.segment_dir = places->segment_dir,
                     .state_dir = places->state.path,
                     .database_bytes_max = beside ? kBesideBytesMax : 0,
                     .places_prefix = wire::DefaultDirectoryOf(geteuid(), 0).path,
                     .judge_patience_ns = kJudgePatienceNs,
                     .outbox = asked.outbox || ProcessEnvironment()(kEnvOutbox) == "1",
                     .idle_exit_ns = asked.idle_exit_seconds * kNsPerSecond},
                    Diagnose, clock, listeners);
  if (!daemon.ok()) return Refuse(daemon.status());
  if (!places->state.note.empty()) listeners.Remark(places->state.note);
  listeners.Remark("nanwatchd " NANWATCH_VERSION " watches " + places->segment_dir + ", state in " +
                   places->state.path);
  if (asked.detach) LetGo();

  while (true) {
    const Result<Daemon::Left> left = daemon->Run(signals.get());
    if (!left.ok()) {
      listeners.Trouble(left.status().message() + "; exiting");
      return 1;
    }
    if (*left == Daemon::Left::kStopAsked && !StopAsked(signals.get(), *human_log, *event_log))
      continue;
    daemon->Finish();
    listeners.Remark(*left == Daemon::Left::kIdle ? "no job is running any more: exiting"
                                                  : "asked to exit");
    return 0;
  }
}

int ServeInBackground(const CommandLine& asked) {
  int words[2];
  if (pipe2(words, O_CLOEXEC) != 0) return Refuse(Status(ErrorKind::kIo, "cannot create a pipe"));
  const pid_t background = fork();
  if (background < 0) return Refuse(Status(ErrorKind::kIo, "cannot start the background process"));
  if (background > 0) {
    close(words[1]);
    return AwaitBackground(words[0]);
  }
  EnterBackground(words[1]);
  close(words[0]);
  close(words[1]);
  return Serve(asked);
}

int Main(int argc, char** argv) {
  CommandLine asked;
  CLI::App app{
      "nanwatchd: reads what nanwatch finds in this user's jobs, and keeps it in a database.\n"
      "There is one per user and host; 'nanwatch run' starts it when none runs."};
  app.set_version_flag("--version", "nanwatchd " NANWATCH_VERSION);
  app.add_option("--dir", asked.segment_dir, "directory of the segments (NANWATCH_DIR)");
  app.add_option("--state-dir", asked.state_dir,
                 "directory of the database and logs (NANWATCH_STATE_DIR)");
  app.add_option("--idle-exit", asked.idle_exit_seconds, "exit after this time without a job")
      ->type_name("SECONDS");
  app.add_flag("--outbox", asked.outbox,
               "keep what 'nanwatch forward' sends to a fleet (NANWATCH_OUTBOX=1)");
  app.add_flag("--detach", asked.detach, "go to the background when ready");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "nanwatchd: %s; see 'nanwatchd --help'\n",
                 PlainComplaint(error.what()).c_str());
    return kWrongUse;
  }
  const Result<Configuration> configuration = ReadConfiguration();
  if (!configuration.ok()) {
    std::fprintf(stderr, "nanwatchd: %s\n", configuration.status().message().c_str());
    return kWrongUse;
  }
  for (const std::string& note : configuration->notes)
    std::fprintf(stderr, "nanwatchd: %s\n", note.c_str());
  ApplyConfiguration(*configuration, "");
  umask(077);
  StripPreload();
  return asked.detach ? ServeInBackground(asked) : Serve(asked);
}

}  // namespace
}  // namespace nanwatch

int main(int argc, char** argv) { return nanwatch::Main(argc, argv); }
