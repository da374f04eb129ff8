// SPDX-License-Identifier: Apache-2.0
// What /proc says about a process that should get the library. Facts only: late_load_plan.h decides
// what follows.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tools/elf_interpreter.h"

namespace nanwatch {

struct ProcessFacts {
  int pid = 0;
  bool exists = false;
  char state = '?';  // as /proc/PID/status has it: R, S, D, T stopped, t traced, Z zombie, ...
  uid_t uid = 0;     // effective
  std::string user;  // its name, or the number
  int tracer_pid = 0;
  int seccomp = 0;        // 1 strict, 2 a filter
  int inner_pid = 0;      // as the process itself sees it
  int trace_error = 0;    // errno if the kernel does not let us read its memory; 0: it does
  bool readable = false;  // what follows could be read at all
  bool same_pid_namespace = false;
  bool sees_library = false;   // our libnanwatch.so is at the same path for it
  bool sees_segments = false;  // so does the directory of segments, or its parent

  std::string executable;  // its path; /proc/PID/exe if that name is gone
  std::optional<ElfFile> elf;
  bool musl = false;

  std::string python;             // "314" of CPython 3.14, "314t" free-threaded; "" none mapped
  std::string libtorch;           // the path of libtorch_cpu.so, "" none mapped
  bool has_library = false;       // a libnanwatch.so is mapped
  bool has_observer = false;      // and an observer
  bool switched_off = false;      // started with NANWATCH=0
  bool remote_debug_off = false;  // started so that sys.remote_exec may not reach it
};

// Reads everything; touches nothing of the process. What is not allowed to be read stays as above.
[[nodiscard]] ProcessFacts ReadProcessFacts(int pid, const std::string& library,
                                            const std::string& segment_dir);

// The same facts from the texts of /proc, each by itself. `maps`: /proc/PID/maps.
void TakeMappings(std::string_view maps, ProcessFacts& facts);
// `status`: /proc/PID/status.
void TakeStatus(std::string_view status, ProcessFacts& facts);
// `environment` and `command`: entries ended by NUL.
void TakeStart(std::string_view environment, std::string_view command, ProcessFacts& facts);

// Facts about this host and this user.
struct HostFacts {
  uid_t uid = 0;
  bool may_trace_all = false;  // CAP_SYS_PTRACE
  int ptrace_scope = -1;       // of Yama; -1: this kernel has none
  bool filtered = false;       // system calls are filtered (seccomp), as in containers
  uint16_t machine = 0;        // e_machine of this program
  bool may_write_code = true;  // this kernel lets a tracer write to read-only pages
};
[[nodiscard]] HostFacts ReadHostFacts();

}  // namespace nanwatch
