// SPDX-License-Identifier: Apache-2.0
// Which launch a process belongs to: what makes the ranks of one launch one job, and keeps two
// launches apart. `nanwatch run` and the observer ask the same questions, so the answers stand
// here.
//
//   srun                 SLURM_JOB_ID.SLURM_STEP_ID            4711.0
//   torchrun, mpirun     the launcher's id and its process     night-3f9c01d2
//   a batch system       its id and the outermost process      4711-a201fe7b
//                        that was started with our library
//
// A step's number is given once in a job of Slurm, to all ranks on all hosts. All other ids repeat:
// a person types `--rdzv-id=100`, a build server has the same JOB_NAME for a year, a container
// counts its pids from 1. So the process that started the ranks belongs to the id: its pid and when
// it started. That process is found from below: it is the first ancestor whose own environment
// lacks what the launcher gives to its ranks. Each host has its own, so ranks on several hosts that
// are to be one job need Slurm or NANWATCH_JOB.
//
// A batch system's id names an allocation, in which a script may start many commands. A process
// without any of these is a job of its own.
//
// Reads /proc when it is asked; std and libc only, no allocation, no state.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "proto/wire/place.h"

namespace nanwatch::wire {

// The segment directory of the `nanwatch run` around a job, set by it: where a process without a
// segment leaves its mark.
inline constexpr char kEnvRunDir[] = "NANWATCH_RUN_DIR";

struct LaunchId {
  char text[64] = "";  // letters, digits, '.', '_' and '-'; "": no launch is known

  [[nodiscard]] bool known() const noexcept { return text[0] != '\0'; }
};

namespace launch_internal {

struct ProcessStat {
  int parent = 0;
  int terminal = 0;  // 0: no controlling terminal
  uint64_t started = 0;
};

inline bool ReadStat(int pid, ProcessStat& stat) noexcept {
  char text[1024];
  std::snprintf(text, sizeof text, "/proc/%d/stat", pid);
  const int fd = open(text, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  text[got > 0 ? got : 0] = '\0';
  const char* at = std::strrchr(text, ')');
  for (int field = 3; at != nullptr && field <= 22; ++field) {
    at = std::strchr(at + 1, ' ');
    if (at == nullptr) return false;
    if (field == 4) stat.parent = std::atoi(at);
    if (field == 7) stat.terminal = std::atoi(at);
    if (field == 22) stat.started = std::strtoull(at, nullptr, 10);
  }
  return at != nullptr;
}

// Calls `see(entry)` for each "NAME=value" that the process was started with, cut at 4 KiB, until
// it returns true, and returns whether it did. `overwritten`: a program has written its title over
// its environment, so nobody can tell. That of another user counts as empty.
template <class See>
bool AnyVariable(int pid, bool& overwritten, See see) noexcept {
  overwritten = false;
  char name[32];
  std::snprintf(name, sizeof name, "/proc/%d/environ", pid);
  const int fd = open(name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  overwritten = true;
  char entry[4096];
  char piece[4096];
  size_t length = 0;
  bool found = false;
  for (ssize_t got = 0; !found && (got = read(fd, piece, sizeof piece)) > 0;) {
    for (ssize_t i = 0; i < got && !found; ++i) {
      if (piece[i] != '\0') {
        if (length < sizeof entry - 1) entry[length++] = piece[i];
        continue;
      }
      entry[length] = '\0';
      length = 0;
      overwritten = overwritten && std::strchr(entry, '=') == nullptr;
      found = see(static_cast<const char*>(entry));
    }
  }
  close(fd);
  return found;
}

// "NAME=value" is `name`, with `value` unless that is null.
inline bool Is(const char* entry, const char* name, const char* value) noexcept {
  const size_t length = std::strlen(name);
  if (std::strncmp(entry, name, length) != 0 || entry[length] != '=') return false;
  return value == nullptr || std::strcmp(entry + length + 1, value) == 0;
}

inline uint64_t BootWord() noexcept {
  char text[64] = "";
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  uint64_t word = 0;
  for (ssize_t i = 0; i < got; ++i) word = word * 31 + static_cast<unsigned char>(text[i]);
  return word;
}

constexpr int kAncestorsMax = 64;

// What one process of this host is known by, for ever. 0: it is gone.
inline uint32_t ProcessKey(int pid) noexcept {
  ProcessStat stat;
  if (!ReadStat(pid, stat)) return 0;
  const uint64_t words[] = {BootWord(), PlaceOfProcess(0).pid_namespace, static_cast<uint64_t>(pid),
                            stat.started};
  return place_internal::Hash(words, 4);
}

// The first ancestor that was not started with `name` (and `value`, unless null).
inline int LauncherOf(int pid, const char* name, const char* value) noexcept {
  ProcessStat stat;
  for (int i = 0; i < kAncestorsMax && ReadStat(pid, stat) && stat.parent > 0; ++i) {
    pid = stat.parent;
    bool overwritten = false;
    const bool has =
        AnyVariable(pid, overwritten, [&](const char* entry) { return Is(entry, name, value); });
    if (!has && !overwritten) break;
  }
  return pid;
}

// The outermost of the processes from `pid` upward that were started with our library in
// LD_PRELOAD, without a gap, and with the same batch job; `pid` itself otherwise.
inline int PreloadedRootOf(int pid, const char* name, const char* value) noexcept {
  ProcessStat stat;
  for (int i = 0; i < kAncestorsMax && ReadStat(pid, stat) && stat.parent > 1; ++i) {
    bool overwritten = false;
    bool preloaded = false;
    bool same_batch = false;
    (void)AnyVariable(stat.parent, overwritten, [&](const char* entry) {
      preloaded = preloaded || (Is(entry, "LD_PRELOAD", nullptr) &&
                                std::strstr(entry, "libnanwatch.so") != nullptr);
      same_batch = same_batch || Is(entry, name, value);
      return preloaded && same_batch;
    });
    if (!overwritten && !(preloaded && same_batch)) break;
    pid = stat.parent;
  }
  return pid;
}

// `name`, cut and cleaned so that it can stand in a file's name, and the key of a process.
inline LaunchId NameWithKey(const char* name, uint32_t key) noexcept {
  LaunchId id;
  constexpr size_t kNameMax = sizeof id.text - sizeof "-3f9c01d2";
  size_t length = 0;
  for (; *name != '\0' && length < kNameMax; ++name) {
    const char c = *name;
    const bool fits = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      c == '-' || c == '_' || (c == '.' && length > 0);
    id.text[length++] = fits ? c : '_';
  }
  std::snprintf(id.text + length, sizeof id.text - length, "-%08x", static_cast<unsigned>(key));
  return id;
}

inline bool IsNumber(const char* text) noexcept {
  return text != nullptr && *text != '\0' && std::strspn(text, "0123456789") == std::strlen(text);
}

// Numbers from here up are Slurm's own: the batch script, an interactive shell.
constexpr uint64_t kSlurmReservedSteps = 0xfffffff0;

// A step of Slurm, unless it is the shell that a person types into: there each command is a launch.
template <class Variable>
LaunchId SlurmStep(Variable variable) noexcept {
  LaunchId id;
  const char* job = variable("SLURM_JOB_ID");
  const char* step = variable("SLURM_STEP_ID");
  if (!IsNumber(step)) step = variable("SLURM_STEPID");
  if (!IsNumber(job) || !IsNumber(step)) return id;
  if (std::strtoull(step, nullptr, 10) >= kSlurmReservedSteps) return id;
  ProcessStat self;
  const char* pseudo_terminal = variable("SLURM_PTY_PORT");
  if (pseudo_terminal != nullptr && ReadStat(getpid(), self) && self.terminal != 0) return id;
  if (std::strlen(job) <= 20 && std::strlen(step) <= 20)
    std::snprintf(id.text, sizeof id.text, "%.20s.%.20s", job, step);
  return id;
}

}  // namespace launch_internal

// The launch of a process that a launcher started as one of its ranks; unknown where none did.
// `variable(name)` is the value in the process's own environment, or null.
template <class Variable>
LaunchId LaunchOfRank(Variable variable) noexcept {
  using namespace launch_internal;
  if (const LaunchId step = SlurmStep(variable); step.known()) return step;
  struct Launcher {
    const char* variable;
    bool names_launch;  // the same in all ranks of a launch; otherwise each rank has its own
    const char* otherwise;
  };
  constexpr Launcher kLaunchers[] = {{"TORCHELASTIC_RUN_ID", true, "torchrun"},
                                     {"PMIX_NAMESPACE", true, "mpirun"},
                                     {"PMI_JOBID", true, "mpirun"},
                                     {"OMPI_COMM_WORLD_RANK", false, "mpirun"},
                                     {"PMI_RANK", false, "mpirun"}};
  for (const Launcher& launcher : kLaunchers) {
    const char* value = variable(launcher.variable);
    if (value == nullptr || *value == '\0') continue;
    const uint32_t key = ProcessKey(
        LauncherOf(getpid(), launcher.variable, launcher.names_launch ? value : nullptr));
    const bool has_name = launcher.names_launch && std::strcmp(value, "none") != 0;
    return NameWithKey(has_name ? value : launcher.otherwise, key);
  }
  return {};
}

// The launch of a process that was started with our library inside a batch system's job.
template <class Variable>
LaunchId LaunchInBatch(Variable variable) noexcept {
  using namespace launch_internal;
  for (const char* name :
       {"SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "BUILD_TAG", "JOB_ID", "JOB_NAME"}) {
    const char* value = variable(name);
    if (value == nullptr || *value == '\0') continue;
    return NameWithKey(value, ProcessKey(PreloadedRootOf(getpid(), name, value)));
  }
  return {};
}

}  // namespace nanwatch::wire
