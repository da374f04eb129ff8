// SPDX-License-Identifier: Apache-2.0
#include "tools/process_facts.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>

#include "daemon/base/small_file.h"
#include "tools/inject/target_memory.h"
#include "tools/user_name.h"

namespace nanwatch {
namespace {

constexpr unsigned kCapabilityToTrace = 19;  // CAP_SYS_PTRACE

std::string LinkOf(const std::string& path) {
  std::error_code error;
  return std::filesystem::read_symlink(path, error);
}

// The text after "NAME:\t" in a file like /proc/PID/status; "" if there is no such line.
std::string_view Field(std::string_view status, std::string_view name) {
  for (size_t at = 0; at < status.size();) {
    const size_t end = std::min(status.find('\n', at), status.size());
    const std::string_view line = status.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    const size_t begin = line.find_first_not_of(" \t", name.size() + 1);
    return begin == std::string_view::npos ? std::string_view() : line.substr(begin);
  }
  return {};
}

// The n-th word of a field, as a number.
template <typename T>
T NumberIn(std::string_view field, int n, int base = 10) {
  for (; n > 0 && !field.empty(); --n) {
    field.remove_prefix(std::min(field.find_first_of(" \t"), field.size()));
    field.remove_prefix(std::min(field.find_first_not_of(" \t"), field.size()));
  }
  T number{};
  std::from_chars(field.data(), field.data() + field.size(), number, base);
  return number;
}

// The kernel's answer to the question that --inject and sys.remote_exec will ask it; the address
// does not matter, because it judges before it looks.
int TraceError(int pid) {
  char byte = 0;
  iovec here = {.iov_base = &byte, .iov_len = 1};
  iovec there = {.iov_base = reinterpret_cast<void*>(uintptr_t{4096}), .iov_len = 1};
  if (process_vm_readv(pid, &here, 1, &there, 1, 0) >= 0) return 0;
  return errno == EFAULT ? 0 : errno;
}

bool IsSameFile(const std::string& one, const std::string& other) {
  struct stat a = {};
  struct stat b = {};
  return stat(one.c_str(), &a) == 0 && stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

// The digits, and a "t", that follow `before` in `text`; "" when there are none.
std::string TagBehind(std::string_view text, std::string_view before) {
  const size_t at = text.rfind(before);
  if (at == std::string_view::npos) return "";
  std::string tag;
  for (const char c : text.substr(at + before.size())) {
    if (c == 't' && !tag.empty()) return tag + 't';
    if (c < '0' || c > '9') break;
    tag += c;
  }
  return tag;
}

std::string_view FileName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

void TakeMapping(std::string_view path, ProcessFacts& facts) {
  const std::string_view file = FileName(path);
  if (file.starts_with("libtorch_cpu.so") && facts.libtorch.empty()) facts.libtorch = path;
  if (file.starts_with("libnanwatch.so")) facts.has_library = true;
  if (file.starts_with("libnanwatch_observer-")) facts.has_observer = true;
  if (file.starts_with("ld-musl-")) facts.musl = true;
  // An extension module says it best: _C.cpython-311-x86_64-linux-gnu.so. Then libpython3.11.so,
  // python3.11.
  std::string tag = TagBehind(file, ".cpython-");
  if (!tag.empty()) {
    facts.python = tag;
  } else if (facts.python.empty() &&
             (file.starts_with("libpython3.") || file.starts_with("python3."))) {
    tag = TagBehind(file, "python3.");
    if (!tag.empty()) facts.python = "3" + tag;
  }
}

}  // namespace

void TakeMappings(std::string_view maps, ProcessFacts& facts) {
  while (!maps.empty()) {
    const size_t end = std::min(maps.find('\n'), maps.size());
    const std::string_view line = maps.substr(0, end);
    maps.remove_prefix(std::min(end + 1, maps.size()));
    const size_t path = line.find('/');
    if (path != std::string_view::npos) TakeMapping(line.substr(path), facts);
  }
}

void TakeStatus(std::string_view status, ProcessFacts& facts) {
  facts.exists = !status.empty();
  const std::string_view state = Field(status, "State");
  if (!state.empty()) facts.state = state[0];
  facts.uid = NumberIn<uid_t>(Field(status, "Uid"), 1);
  facts.tracer_pid = NumberIn<int>(Field(status, "TracerPid"), 0);
  facts.seccomp = NumberIn<int>(Field(status, "Seccomp"), 0);
  const std::string_view pids = Field(status, "NSpid");
  const size_t last = pids.find_last_of(" \t");
  facts.inner_pid = NumberIn<int>(last == std::string_view::npos ? pids : pids.substr(last + 1), 0);
}

void TakeStart(std::string_view environment, std::string_view command, ProcessFacts& facts) {
  const auto each = [](std::string_view text, auto&& take) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\0'), text.size());
      take(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  };
  each(environment, [&](std::string_view entry) {
    constexpr std::string_view kOff = "PYTHON_DISABLE_REMOTE_DEBUG=";
    if (entry == "NANWATCH=0") facts.switched_off = true;
    if (entry.starts_with(kOff) && entry.size() > kOff.size()) facts.remote_debug_off = true;
  });
  each(command, [&](std::string_view word) {
    constexpr std::string_view kOption = "disable-remote-debug";
    if (word == kOption || (word.starts_with("-X") && word.substr(2).starts_with(kOption)))
      facts.remote_debug_off = true;
  });
}

ProcessFacts ReadProcessFacts(int pid, const std::string& library, const std::string& segment_dir) {
  const std::string proc = "/proc/" + std::to_string(pid);
  ProcessFacts facts;
  facts.pid = pid;
  TakeStatus(TextOfProcFile(proc + "/status"), facts);
  if (!facts.exists) return facts;
  facts.user = UserName(facts.uid);
  if (facts.user.empty()) facts.user = std::to_string(facts.uid);
  facts.trace_error = TraceError(pid);
  const std::string maps = TextOfProcFile(proc + "/maps");
  const std::string executable = LinkOf(proc + "/exe");
  facts.readable = !maps.empty() && !executable.empty();
  facts.same_pid_namespace = LinkOf(proc + "/ns/pid") == LinkOf("/proc/self/ns/pid");
  if (!facts.readable) return facts;
  facts.sees_library = IsSameFile(library, proc + "/root" + library);
  const std::string parent = std::filesystem::path(segment_dir).parent_path();
  facts.sees_segments = access(segment_dir.c_str(), F_OK) == 0
                            ? IsSameFile(segment_dir, proc + "/root" + segment_dir)
                            : IsSameFile(parent, proc + "/root" + parent);
  // An executable that was replaced meanwhile still runs, and can be started again by this name.
  facts.executable = IsSameFile(executable, proc + "/exe") ? executable : proc + "/exe";
  facts.elf = ReadElf(proc + "/exe");
  facts.musl = facts.elf.has_value() && facts.elf->interpreter.find("musl") != std::string::npos;
  TakeMappings(maps, facts);
  TakeStart(TextOfProcFile(proc + "/environ"), TextOfProcFile(proc + "/cmdline"), facts);
  return facts;
}

HostFacts ReadHostFacts() {
  HostFacts facts;
  facts.uid = geteuid();
  const std::string status = TextOfProcFile("/proc/self/status");
  facts.may_trace_all =
      (NumberIn<uint64_t>(Field(status, "CapEff"), 0, 16) >> kCapabilityToTrace & 1) != 0;
  facts.filtered = NumberIn<int>(Field(status, "Seccomp"), 0) != 0;
  const std::string scope = TextOfProcFile("/proc/sys/kernel/yama/ptrace_scope");
  if (!scope.empty()) facts.ptrace_scope = NumberIn<int>(scope, 0);
  const std::optional<ElfFile> elf = ReadElf("/proc/self/exe");
  if (elf.has_value()) facts.machine = elf->machine;
  facts.may_write_code = MayWriteReadOnlyPages();
  return facts;
}

}  // namespace nanwatch
