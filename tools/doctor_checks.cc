// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor_checks.h"

#include <fmt/format.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "daemon/base/directories.h"
#include "daemon/report/text_layout.h"
#include "proto/wire/naming.h"
#include "shim/host/file_room.h"
#include "tools/command.h"
#include "tools/daemon_start.h"
#include "tools/installation.h"
#include "tools/observations.h"
#include "tools/preload.h"
#include "tools/process_facts.h"
#include "tools/python_probe.h"

namespace nanwatch {
namespace {

// What a segment has at the start and what a healthy job fills of it, rounded up; tests/shim/host
// keeps both (segment_growth_test.cc).
constexpr uint64_t kFirstBytes = uint64_t{320} << 10;
constexpr uint64_t kHealthyBytes = uint64_t{1} << 20;
constexpr int kRanksMax = 100'000;
constexpr long kTmpfsMagic = 0x01021994;
constexpr unsigned kFirstLoginUid = 1000;

Check CheckLibrary(const Installation& installation) {
  const std::string& library = installation.library;
  if (ResolveLinks(library).empty()) {
    return {"library", Health::kFail,
            "there is no " + library + ": install nanwatch again, or keep bin and lib together"};
  }
  if (!CanBePreloaded(library)) {
    return {"library", Health::kFail,
            "'" + library +
                "' has a space or a colon in its path, which "
                "LD_PRELOAD cannot carry: install nanwatch somewhere else"};
  }
  return {"library", Health::kOk, library};
}

Check CheckObservers(const Installation& installation) {
  const std::vector<std::string> minors = ObserverMinors(installation);
  if (!minors.empty())
    return {"observers", Health::kOk, fmt::format("for torch {}", fmt::join(minors, ", "))};
  return {"observers", Health::kFail,
          "there is none in " + installation.observer_dir + ": build one with " +
              BuildObserverCommand(installation, "PYTHON")};
}

// The loader decides whether LD_PRELOAD is honoured at all.
Check CheckLoader(const PythonProbe& probe) {
  if (probe.interpreter.empty()) {
    return {"loader", Health::kFail,
            probe.executable +
                " is linked statically, so LD_PRELOAD has no "
                "effect: use a Python that is linked dynamically"};
  }
  if (probe.interpreter.find("musl") != std::string::npos) {
    return {"loader", Health::kFail,
            probe.executable + " uses musl (" + probe.interpreter +
                "), for which there is no observer: use a glibc image"};
  }
  return {"loader", Health::kOk, probe.executable + ", loaded by " + probe.interpreter};
}

// Ours may be another: the programs of a package bring it along.
Check CheckLibc(const std::string& version) {
  int major = 0;
  int minor = 0;
  if (sscanf(version.c_str(), "%d.%d", &major, &minor) == 2 && major == 2 && minor < 28) {
    return {"glibc", Health::kFail,
            version + " is installed, but observers need 2.28: use a newer host or image"};
  }
  return {"glibc", Health::kOk, version};
}

Check CheckTorch(const PythonProbe& probe, const Installation& installation) {
  if (probe.torch_version.empty()) {
    return {
        "torch", Health::kFail,
        "Python " + probe.python_version + " at " + probe.executable +
            " has no torch: name the job's Python with --python, or install torch into this one"};
  }
  const std::string minor = MinorOf(probe.torch_version);
  const std::vector<std::string> minors = ObserverMinors(installation);
  if (std::find(minors.begin(), minors.end(), minor) != minors.end()) {
    return {"torch", Health::kOk,
            probe.torch_version + " in " + probe.torch_dir + ", supported by the observer for " +
                minor};
  }
  return {"torch", Health::kFail,
          "there is no observer for torch " + probe.torch_version + ": build one with " +
              BuildObserverCommand(installation, probe.executable)};
}

void CheckPython(const std::string& named_python, const EnvironmentBlock& outside,
                 const Installation& installation, Checks& checks) {
  std::string python = named_python;
  if (python.empty()) {
    python = FindCommand("python", outside.Text("PATH")).exit_code == 0 ? "python" : "python3";
  }
  const PythonProbe probe = ProbePython(python, outside);
  if (!probe.problem.empty()) {
    checks.push_back({"python", Health::kFail, probe.problem});
    return;
  }
  checks.push_back(CheckLoader(probe));
  if (!probe.glibc.empty()) checks.push_back(CheckLibc(probe.glibc));
  checks.push_back(CheckTorch(probe, installation));
}

Check CheckSwitch(const EnvironmentBlock& outside) {
  if (outside.Text(wire::kEnvSwitch) != "0") return {"switch", Health::kOk, "NANWATCH is not 0"};
  return {"switch", Health::kFail, "NANWATCH=0 is set, which switches observation off: unset it"};
}

void CheckPreload(const EnvironmentBlock& outside, const Installation& installation,
                  Checks& checks) {
  const std::string preload = outside.Text("LD_PRELOAD");
  for (const std::string& entry : PreloadEntries(preload)) {
    const bool is_path =
        entry.find('/') != std::string::npos && entry.find('$') == std::string::npos;
    if (is_path && ResolveLinks(entry).empty()) {
      checks.push_back({"LD_PRELOAD", Health::kWarn,
                        "names " + entry +
                            ", which does not exist: every "
                            "program started here complains about it; remove it"});
    }
  }
  const PreloadPlan plan = ComposePreload(preload, installation.library, ResolveLinks);
  if (!plan.other_copy.empty()) {
    checks.push_back({"LD_PRELOAD", Health::kWarn,
                      "names another copy of nanwatch, " + plan.other_copy +
                          ", which will watch instead of this one"});
  } else if (plan.already_there) {
    checks.push_back(
        {"LD_PRELOAD", Health::kOk, "names this library: every program started here has it"});
  } else if (!preload.empty()) {
    checks.push_back({"LD_PRELOAD", Health::kOk,
                      "is '" + preload + "'; nanwatch's library will be added after it"});
  }
}

std::string Mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

int CountGpus() {
  std::error_code error;
  int gpus = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename();
    if (name.size() > 6 && name.starts_with("nvidia") &&
        std::all_of(name.begin() + 6, name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      ++gpus;
    }
  }
  return gpus;
}

// Room and kind of the file system that holds `path`, or will hold it.
void CheckSegmentRoom(const std::string& path, const ExpectedRanks& ranks, Checks& checks) {
  std::string existing = path;
  while (access(existing.c_str(), F_OK) != 0 && existing != "/") {
    existing = std::filesystem::path(existing).parent_path();
  }
  struct statvfs room = {};
  struct statfs kind = {};
  if (statvfs(existing.c_str(), &room) != 0 || statfs(existing.c_str(), &kind) != 0) return;
  const uint64_t free_bytes = uint64_t{room.f_bavail} * room.f_frsize;
  checks.push_back(JudgeRoom(free_bytes, uint64_t{room.f_blocks} * room.f_frsize, ranks));
  if (kind.f_type != kTmpfsMagic) {
    checks.push_back({"segment room", Health::kWarn,
                      existing + " is not a tmpfs: a job may have to wait "
                                 "for the disk; set NANWATCH_DIR to a directory under /dev/shm"});
  }
}

void CheckSegmentDirectory(const Places& places, const ExpectedRanks& ranks, Checks& checks) {
  const Status& status = places.segment_status;
  if (places.segment_dir.empty()) {
    checks.push_back({"segments", Health::kFail, status.message()});
    return;
  }
  const std::string parent = std::filesystem::path(places.segment_dir).parent_path();
  if (status.ok()) {
    checks.push_back({"segments", Health::kOk, places.segment_dir});
  } else if (status.kind() == ErrorKind::kNotFound && access(parent.c_str(), W_OK) == 0) {
    checks.push_back(
        {"segments", Health::kOk, places.segment_dir + " will be created by the first job"});
  } else if (status.kind() == ErrorKind::kNotFound) {
    checks.push_back({"segments", Health::kFail,
                      places.segment_dir +
                          " does not exist and cannot be created "
                          "in " +
                          parent + ": create it with mode 0700, or change NANWATCH_DIR"});
  } else {
    checks.push_back({"segments", Health::kFail, status.message()});
  }
  CheckSegmentRoom(places.segment_dir, ranks, checks);
}

Check CheckStateDirectory(const Places& places) {
  if (!places.state_status.ok()) return {"state", Health::kFail, places.state_status.message()};
  const Status writable = EnsureStateDirectory(places.wanted_state_dir);
  if (!writable.ok()) {
    return {"state", Health::kWarn,
            writable.message() + "; until the next boot the database is beside the segments, in " +
                StateBesideSegments(places.segment_dir)};
  }
  if (!places.note.empty()) return {"state", Health::kWarn, places.note};
  return {"state", Health::kOk, places.state_dir};
}

Check CheckDatabase(Observations& observations) {
  const Status status = observations.DatabaseStatus();
  const std::string& path = observations.places().database;
  const bool is_there = access(path.c_str(), F_OK) == 0;
  if (status.ok())
    return {"database", Health::kOk, path + (is_there ? "" : " will be created by the first job")};
  return {"database", Health::kWarn, status.message()};
}

Check CheckDaemon(const Places& places, const Installation& installation) {
  const std::optional<pid_t> pid = RunningDaemon(places.segment_dir);
  if (pid.has_value()) return {"daemon", Health::kOk, "running, pid " + std::to_string(*pid)};
  if (access(installation.daemon.c_str(), X_OK) != 0) {
    return {"daemon", Health::kWarn,
            "there is no " + installation.daemon +
                ": 'nanwatch run' works, but keeps nothing when it ends"};
  }
  return {"daemon", Health::kOk, "not running; 'nanwatch run' starts it"};
}

// Containers that share /dev/shm with us, and the host when we are in one of them.
void CheckOtherPlaces(const Places& places, Checks& checks) {
  for (const OtherPlace& other : FindOtherPlaces(places.segment_dir)) {
    checks.push_back({"containers", Health::kWarn,
                      other.path +
                          " is another segment directory of yours, from this host or a "
                          "container (" +
                          Counted(other.segments, "segment") +
                          "): use nanwatch there for its runs; what ended runs left "
                          "behind is removed after a day"});
  }
}

// systemd-logind removes a user's files from /dev/shm when their last session ends, unless it is
// configured not to.
void CheckLogout(const Places& places, const EnvironmentBlock& outside, Checks& checks) {
  if (access("/run/systemd/seats", F_OK) != 0 || geteuid() < kFirstLoginUid) return;
  if (!places.segment_dir.starts_with("/dev/shm/")) return;
  const std::string user = outside.Text("USER");
  if (!user.empty() && access(("/var/lib/systemd/linger/" + user).c_str(), F_OK) == 0) return;
  std::ifstream config("/etc/systemd/logind.conf");
  for (std::string line; std::getline(config, line);) {
    if (line == "RemoveIPC=no") return;
  }
  checks.push_back(
      {"logout", Health::kWarn,
       "when your last session ends, systemd removes what you have in /dev/shm; a job "
       "that is still running creates a new segment, but what no daemon has read is lost: "
       "'loginctl enable-linger' prevents it"});
}

// Whether a process that was started without the library could be given it.
Check CheckLateLoad() {
  const HostFacts host = ReadHostFacts();
  if (host.ptrace_scope >= 1 && !host.may_trace_all) {
    return {"attach", Health::kWarn,
            "you cannot attach to processes that were started without nanwatch: "
            "kernel.yama.ptrace_scope is " +
                std::to_string(host.ptrace_scope) +
                (host.ptrace_scope == 3 ? ", until the next boot"
                                        : "; 'sysctl kernel.yama.ptrace_scope=0' allows it")};
  }
  if (!host.may_write_code) {
    return {
        "attach", Health::kWarn,
        "you can attach to a process that was started without nanwatch only if it runs Python 3.14 "
        "or later: this kernel does not allow writing to read-only memory "
        "(proc_mem.force_override)"};
  }
  return {"attach", Health::kOk,
          "works, also for processes that were started without nanwatch: Python 3.14 loads the "
          "library when asked, older versions need --inject"};
}

void CheckForeign(Observations& observations, Checks& checks) {
  (void)observations.Runs();
  for (const UnreadableFile& file : observations.foreign()) {
    checks.push_back({"foreign file", Health::kWarn, file.name + ": " + file.reason});
  }
}

}  // namespace

ExpectedRanks GuessRanks(const EnvironmentBlock& outside, int gpus, int cores) {
  for (const char* name : {"LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE"}) {
    // Slurm also writes "4(x2)".
    const int count = static_cast<int>(strtol(outside.Text(name).c_str(), nullptr, 10));
    if (count > 0 && count <= kRanksMax) return {count, name};
  }
  if (gpus > 0) return {gpus, "GPUs here"};
  return {std::max(1, cores), "cores here"};
}

Check JudgeRoom(uint64_t free_bytes, uint64_t total_bytes, const ExpectedRanks& ranks) {
  const auto count = static_cast<uint64_t>(ranks.count);
  const auto fits = [&](uint64_t each) {
    const uint64_t all = each * count;
    if (total_bytes == 0) return true;
    return all <= free_bytes &&
           LeavesEnough({.free = free_bytes - all, .total = total_bytes}, each);
  };
  const std::string text = Mebibytes(free_bytes) + " free; " + std::to_string(count) +
                           (count == 1 ? " process" : " processes") + " (" + ranks.source +
                           ") need " + std::to_string((count * kFirstBytes) >> 10) +
                           " KiB at the start and up to " + Mebibytes(count * kHealthyBytes) +
                           " as long as nothing is found";
  if (fits(kHealthyBytes)) return {"segment room", Health::kOk, text};
  const std::string advice =
      ": give /dev/shm more room (in Docker: --shm-size), or set "
      "NANWATCH_DIR to another tmpfs";
  if (fits(kFirstBytes)) {
    return {"segment room", Health::kWarn,
            text + ", which is more than there is: fewer steps and findings will be kept" + advice};
  }
  return {"segment room", Health::kFail, text + "; some of them would not be watched" + advice};
}

Checks Examine(const std::string& named_python, int ranks) {
  const EnvironmentBlock outside = EnvironmentBlock::OfThisProcess();
  const Installation installation = LocateInstallation();
  Observations observations(FindPlaces(ProcessEnvironment()));
  const Places& places = observations.places();
  Checks checks;
  checks.push_back(CheckLibrary(installation));
  checks.push_back(CheckObservers(installation));
  CheckPython(named_python, outside, installation, checks);
  checks.push_back(CheckSwitch(outside));
  CheckPreload(outside, installation, checks);
  const ExpectedRanks expected =
      ranks > 0
          ? ExpectedRanks{ranks, "--ranks"}
          : GuessRanks(outside, CountGpus(), static_cast<int>(std::thread::hardware_concurrency()));
  CheckSegmentDirectory(places, expected, checks);
  checks.push_back(CheckStateDirectory(places));
  checks.push_back(CheckDatabase(observations));
  checks.push_back(CheckDaemon(places, installation));
  CheckLogout(places, outside, checks);
  checks.push_back(CheckLateLoad());
  CheckForeign(observations, checks);
  CheckOtherPlaces(places, checks);
  return checks;
}

}  // namespace nanwatch
