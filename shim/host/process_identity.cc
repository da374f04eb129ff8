// SPDX-License-Identifier: Apache-2.0
#include "shim/host/process_identity.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "proto/wire/launch.h"
#include "proto/wire/launchers.h"
#include "proto/wire/naming.h"
#include "proto/wire/place.h"
#include "proto/wire/text.h"

namespace nanwatch {
namespace {

// At most `size` bytes of a file of /proc; how many came.
size_t ReadFile(const char* path, char* buffer, size_t size) noexcept {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  size_t done = 0;
  while (done < size) {
    const ssize_t got = read(fd, buffer + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  close(fd);
  return done;
}

template <size_t N>
void SetText(char (&field)[N], std::string_view text) noexcept {
  text = wire::CutText(text, N - 1);
  std::memcpy(field, text.data(), text.size());
  std::memset(field + text.size(), 0, N - text.size());
}

std::string_view Environment(const char* name) noexcept {
  const char* value = secure_getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

bool Number(const char* name, int32_t* number) noexcept {
  const char* text = secure_getenv(name);
  if (text == nullptr || *text == '\0') return false;
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text, &end, 10);
  if (errno != 0 || *end != '\0' || value < 0 || value > INT32_MAX) return false;
  *number = static_cast<int32_t>(value);
  return true;
}

std::string_view BaseName(std::string_view path) noexcept {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

void FillJob(wire::SegmentHeader& header) noexcept {
  if (const std::string_view given = Environment(wire::kEnvJob); !given.empty()) {
    SetText(header.job, given);
    return;
  }
  const auto variable = [](const char* name) noexcept { return secure_getenv(name); };
  wire::LaunchId launch = wire::LaunchOfRank(variable);
  if (!launch.known()) launch = wire::LaunchInBatch(variable);
  SetText(header.job, launch.text);
}

void FillPlace(wire::SegmentHeader& header) noexcept {
  header.world_size = 1;
  for (const wire::RankVariables& launcher : wire::kRankVariables) {
    if (!Number(launcher.rank, &header.rank)) continue;
    Number(launcher.local_rank, &header.local_rank);
    if (!Number(launcher.world_size, &header.world_size)) header.world_size = 1;
    break;
  }
  for (const char* name : wire::kAttemptVariables) {
    if (Number(name, &header.attempt)) break;
  }
  FillJob(header);
}

// "NSpid:\t4711\t12": first as the outermost visible namespace sees it.
int32_t OuterPid(int32_t pid) noexcept {
  char text[4096];
  const std::string_view status{text, ReadFile("/proc/self/status", text, sizeof text - 1)};
  text[status.size()] = '\0';
  const size_t line = status.find("\nNSpid:");
  if (line == std::string_view::npos) return pid;
  const long outer = std::strtol(text + line + 7, nullptr, 10);
  return outer > 0 ? static_cast<int32_t>(outer) : pid;
}

// A field of a process's stat file, counted behind the command's closing parenthesis (field 2). 0:
// there is no such process.
uint64_t StatField(const char* path, int wanted) noexcept {
  char text[2048];
  const size_t size = ReadFile(path, text, sizeof text - 1);
  text[size] = '\0';
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at != nullptr && field < wanted; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

uint64_t StartTicks() noexcept { return StatField("/proc/self/stat", 22); }

int32_t ParentOf(int32_t pid) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  return static_cast<int32_t>(StatField(path, 4));
}

constexpr int kSpawnLevelsMax = 8;  // a child that spawns a child

uint64_t Nanoseconds(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void FillProgram(wire::SegmentHeader& header) noexcept {
  // Enough for a *.py behind many options of its interpreter; what fits goes into the header.
  char command[8192];
  size_t size = ReadFile("/proc/self/cmdline", command, sizeof command - 1);
  if (size > 0 && command[size - 1] != '\0') command[size++] = '\0';
  char executable[1024];
  const ssize_t length = readlink("/proc/self/exe", executable, sizeof executable);
  const std::string_view path{executable, length > 0 ? static_cast<size_t>(length) : 0};
  const std::string_view executable_name = BaseName(path);
  SetText(header.program, ProgramName({command, size}, executable_name));

  const size_t kept = std::min(size, sizeof header.command);
  std::memcpy(header.command, command, kept);
  if (kept == sizeof header.command) header.command[kept - 1] = '\0';
  header.command_bytes = static_cast<uint32_t>(kept);
  const size_t room = sizeof header.command - kept;
  if (room != 0 && getcwd(header.command + kept, room) == nullptr) header.command[kept] = '\0';

  // Its own command says nothing of the job: it is a part of the program that started it, perhaps by
  // way of another such child.
  int32_t pid = getppid();
  for (int level = 0; level < kSpawnLevelsMax && IsSpawnedWorker({command, size}); ++level) {
    char file[64];
    std::snprintf(file, sizeof file, "/proc/%d/cmdline", pid);
    size = ReadFile(file, command, sizeof command);
    const std::string_view program = ProgramName({command, size}, executable_name);
    SetText(header.program, program);
    pid = ParentOf(pid);
  }
}

}  // namespace

std::string_view ProgramName(std::string_view command, std::string_view executable) noexcept {
  bool is_first = true;
  bool is_module = false;
  while (!command.empty()) {
    const std::string_view argument = command.substr(0, command.find('\0'));
    command.remove_prefix(std::min(command.size(), argument.size() + 1));
    if (is_module && !argument.empty()) return argument;
    if (!is_first && argument == "-c") return executable;
    if (!is_first && argument.ends_with(".py")) return BaseName(argument);
    is_module = !is_first && argument == "-m";
    is_first = false;
  }
  return executable;
}

bool IsSpawnedWorker(std::string_view command) noexcept {
  // multiprocessing/spawn.py, get_command_line; the fork server's children are forked from one.
  constexpr std::string_view kMark{"\0--multiprocessing-fork\0", 24};
  return command.find(kMark) != std::string_view::npos;
}

bool IsSpawnedWorker() noexcept {
  char command[8192];
  const size_t size = ReadFile("/proc/self/cmdline", command, sizeof command);
  return IsSpawnedWorker({command, size});
}

void FillIdentity(wire::SegmentHeader& header) noexcept {
  header.started_real_ns = Nanoseconds(CLOCK_REALTIME);
  header.started_monotonic_ns = Nanoseconds(CLOCK_MONOTONIC);
  header.process_start_ticks = StartTicks();
  const wire::Place place = wire::PlaceOfProcess(0);
  header.pid_namespace = place.pid_namespace;
  header.place = place.key;
  header.pid = getpid();
  header.pid_outer = OuterPid(header.pid);
  header.parent_pid = getppid();
  FillPlace(header);
  char text[64];
  const size_t size = ReadFile("/proc/sys/kernel/random/boot_id", text, sizeof text);
  std::string_view boot{text, size};
  SetText(header.boot_id, boot.substr(0, boot.find('\n')));
  if (gethostname(text, sizeof text) == 0) {
    SetText(header.host, {text, strnlen(text, sizeof text)});
  }
  FillProgram(header);
}

}  // namespace nanwatch
