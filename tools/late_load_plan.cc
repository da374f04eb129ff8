// SPDX-License-Identifier: Apache-2.0
#include "tools/late_load_plan.h"

#include <algorithm>

#include "tools/installation.h"
#include "tools/python_probe.h"

namespace nanwatch {
namespace {

LateLoadPlan Refuse(const char* reason, std::string problem) {
  return {.how = LateLoad::kNone, .reason = reason, .problem = std::move(problem)};
}

std::string Name(const ProcessFacts& process) { return "process " + std::to_string(process.pid); }

constexpr char kOrAtStart[] = "start it with 'nanwatch run -- COMMAND' instead";

// Why the kernel does not let us read its memory.
LateLoadPlan ExplainTraceError(const ProcessFacts& process, const HostFacts& host) {
  const std::string name = Name(process);
  if (!host.may_trace_all && host.ptrace_scope == 3) {
    return Refuse("ptrace_scope",
                  "this host lets nobody attach to " + name +
                      " until the next boot (kernel.yama.ptrace_scope is 3): " + kOrAtStart);
  }
  if (!host.may_trace_all && host.ptrace_scope >= 1) {
    return Refuse("ptrace_scope", "this host does not let you attach to " + name +
                                      " (kernel.yama.ptrace_scope is " +
                                      std::to_string(host.ptrace_scope) +
                                      "): have an administrator set it to 0 for now ('sysctl "
                                      "kernel.yama.ptrace_scope=0'), or " +
                                      kOrAtStart);
  }
  if (!host.may_trace_all && host.filtered) {
    return Refuse("seccomp", "the container that nanwatch runs in does not let it attach to " +
                                 name +
                                 " (a seccomp filter, no CAP_SYS_PTRACE): start the container with "
                                 "'--cap-add=SYS_PTRACE', or " +
                                 kOrAtStart);
  }
  return Refuse("ptrace_denied",
                "the kernel does not let you attach to " + name +
                    ": it has more rights than you, or forbids it (PR_SET_DUMPABLE, another user "
                    "namespace); attach as root in its own container, or " +
                    kOrAtStart);
}

LateLoadPlan CheckAccess(const ProcessFacts& process, const HostFacts& host) {
  const std::string name = Name(process);
  const std::string pid = std::to_string(process.pid);
  if (!process.exists) return Refuse("no_process", "there is no process " + pid + " here");
  if (process.state == 'Z' || process.state == 'X')
    return Refuse("ended", name + " has ended: it is a zombie whose parent has not waited for it");
  if (process.uid != host.uid) {
    return Refuse("other_user", name + " belongs to user " + process.user +
                                    ": attach as that user, 'sudo -u " + process.user +
                                    " nanwatch attach " + pid + "'");
  }
  if (process.trace_error == 0 && process.readable && !process.same_pid_namespace) {
    return Refuse("other_container",
                  name +
                      " runs in a container (another pid namespace): run nanwatch inside it, where "
                      "it is process " +
                      std::to_string(process.inner_pid));
  }
  if (process.trace_error != 0 || !process.readable) return ExplainTraceError(process, host);
  if (!process.sees_library) {
    return Refuse("other_files",
                  name +
                      " sees other files than you (a container, another mount namespace), without "
                      "this nanwatch: install and run it there");
  }
  if (!process.sees_segments) {
    return Refuse(
        "other_files",
        name +
            " sees another segment directory than you (a container, another mount namespace): run "
            "nanwatch there, or set NANWATCH_DIR to a directory that both see");
  }
  return {};
}

LateLoadPlan CheckProgram(const ProcessFacts& process, const HostFacts& host) {
  const std::string name = Name(process);
  if (!process.elf.has_value() || !process.elf->is_64_bit || process.elf->machine != host.machine) {
    return Refuse("architecture", name +
                                      " was built for another processor than this nanwatch: "
                                      "install the nanwatch for that processor");
  }
  if (process.musl) {
    return Refuse("musl", name + " uses musl (" + process.elf->interpreter +
                              "), for which there is no observer: use a glibc image");
  }
  if (process.elf->interpreter.empty()) {
    return Refuse("static", name +
                                " is linked statically, so nothing can be loaded into it: use a "
                                "Python that is linked dynamically");
  }
  if (process.switched_off) {
    return Refuse(
        "switched_off",
        name + " was started with NANWATCH=0, which switches nanwatch off: " + kOrAtStart);
  }
  if (process.python.empty()) {
    return Refuse("no_python", name +
                                   " does not run Python: a C++ program can only be watched from "
                                   "its start, with 'nanwatch run -- COMMAND'");
  }
  if (process.has_library || process.has_observer) {
    return Refuse("already", name +
                                 " already has the library, but is not watched: its own stderr "
                                 "says why");
  }
  return {};
}

LateLoadPlan CheckTorch(const ProcessFacts& process, const LateLoadWish& wish) {
  const std::string name = Name(process);
  if (process.libtorch.empty()) {
    return Refuse("no_torch", name +
                                  " has not loaded torch: attach once it has, or give the PID of "
                                  "the process that trains (this may be its launcher)");
  }
  if (wish.torch_version.empty()) {
    return Refuse("torch_unknown", "the version of " + name + "'s torch, " + process.libtorch +
                                       ", is unknown (no version.py or build-version beside it)");
  }
  const std::string minor = MinorOf(wish.torch_version);
  const auto& minors = wish.observer_minors;
  if (std::find(minors.begin(), minors.end(), minor) == minors.end()) {
    return Refuse("torch_unsupported",
                  "there is no observer for torch " + wish.torch_version + ", which " + name +
                      " uses: build one with " +
                      BuildObserverCommand(LocateInstallation(), process.executable));
  }
  return {};
}

// sys.remote_exec exists since 3.14.
bool HasRemoteExec(const ProcessFacts& process) {
  if (process.python.size() < 3) return false;
  const int minor = std::atoi(process.python.c_str() + 1);
  return process.python[0] == '3' && minor >= 14;
}

std::string PythonName(const ProcessFacts& process) {
  return "Python " + process.python.substr(0, 1) + "." + process.python.substr(1);
}

LateLoadPlan PlanInjection(const ProcessFacts& process, const HostFacts& host) {
  const std::string name = Name(process);
  if (process.tracer_pid != 0) {
    return Refuse("traced", name + " is being traced by process " +
                                std::to_string(process.tracer_pid) +
                                " (a debugger, strace): stop that first");
  }
  if (process.seccomp == 1) {
    return Refuse("seccomp",
                  name + " runs under strict seccomp, where nothing can be loaded: " + kOrAtStart);
  }
  if (!host.may_write_code) {
    return Refuse(
        "read_only_code",
        "this kernel does not allow writing to the read-only memory of " + name +
            " (boot option proc_mem.force_override), which --inject needs: " + kOrAtStart);
  }
  return {.how = LateLoad::kInject, .reason = "", .problem = ""};
}

}  // namespace

const char* LateLoadName(LateLoad how) {
  return how == LateLoad::kRemoteExec ? "remote_exec" : how == LateLoad::kInject ? "inject" : "";
}

LateLoadPlan PlanLateLoad(const ProcessFacts& process, const HostFacts& host,
                          const LateLoadWish& wish) {
  for (const LateLoadPlan& refusal :
       {CheckAccess(process, host), CheckProgram(process, host), CheckTorch(process, wish)}) {
    if (!refusal.reason.empty()) return refusal;
  }
  const std::string name = Name(process);
  if (process.state == 'T') {
    return Refuse("stopped", name + " is stopped (SIGSTOP, Ctrl-Z): continue it with 'kill -CONT " +
                                 std::to_string(process.pid) + "', then attach");
  }
  if (HasRemoteExec(process) && !process.remote_debug_off)
    return {.how = LateLoad::kRemoteExec, .reason = "", .problem = ""};
  if (wish.inject) return PlanInjection(process, host);
  if (HasRemoteExec(process)) {
    return Refuse(
        "remote_debug_off",
        name + " was not started with nanwatch, and its " + PythonName(process) +
            " refuses remote code (PYTHON_DISABLE_REMOTE_DEBUG, or -X disable-remote-debug): "
            "--inject loads the library anyway, through a hook on a call of its Python");
  }
  return Refuse("needs_inject",
                name + " was not started with nanwatch, and its " + PythonName(process) +
                    " cannot be asked to load the library (3.14 can): --inject loads it through a "
                    "hook on a call of its Python; next time, start it with 'nanwatch run --level "
                    "idle -- COMMAND'");
}

}  // namespace nanwatch
