// SPDX-License-Identifier: Apache-2.0
// What forbids loading into a process, told from stand-ins for /proc; and what Python is told to
// do.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/late_load_plan.h"
#include "tools/process_facts.h"
#include "tools/remote_exec.h"

namespace nanwatch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A training in CPython 3.11 with torch 2.11 that anybody may attach to, and this host.
ProcessFacts Training() {
  ProcessFacts process;
  process.pid = 4711;
  process.exists = true;
  process.state = 'S';
  process.uid = 1000;
  process.user = "ada";
  process.inner_pid = 4711;
  process.readable = process.same_pid_namespace = true;
  process.sees_library = process.sees_segments = true;
  process.executable = "/usr/bin/python3.11";
  process.elf = ElfFile{.machine = EM_X86_64, .interpreter = "/lib64/ld-linux-x86-64.so.2"};
  process.python = "311";
  process.libtorch = "/venv/torch/lib/libtorch_cpu.so";
  return process;
}
HostFacts Host() {
  HostFacts host;
  host.uid = 1000;
  host.machine = EM_X86_64;
  return host;
}
LateLoadWish Wish(bool inject = true) {
  return {.inject = inject, .torch_version = "2.11.0+cu130", .observer_minors = {"2.10", "2.11"}};
}

// "how", or "reason: problem".
std::string Plan(const ProcessFacts& process, const HostFacts& host = Host(),
                 const LateLoadWish& wish = Wish()) {
  const LateLoadPlan plan = PlanLateLoad(process, host, wish);
  if (plan.how != LateLoad::kNone) {
    EXPECT_EQ(plan.reason + plan.problem, "");
    return LateLoadName(plan.how);
  }
  EXPECT_THAT(plan.problem, HasSubstr("process 4711"));
  EXPECT_THAT(plan.problem, Not(HasSubstr("  ")));
  return plan.reason + ": " + plan.problem;
}

TEST(LateLoadPlan, GoesByAHookWhereItMay) { EXPECT_EQ(Plan(Training()), "inject"); }

TEST(LateLoadPlan, AsksPythonsThatCanBeAskedWithOrWithoutTheOption) {
  ProcessFacts process = Training();
  process.python = "314";
  EXPECT_EQ(Plan(process), "remote_exec");
  EXPECT_EQ(Plan(process, Host(), Wish(false)), "remote_exec");
  process.python = "314t";
  EXPECT_EQ(Plan(process, Host(), Wish(false)), "remote_exec");
  process.python = "313";
  EXPECT_EQ(Plan(process), "inject");
}

TEST(LateLoadPlan, SaysWhatTheOptionWouldDo) {
  EXPECT_THAT(Plan(Training(), Host(), Wish(false)),
              AllOf(HasSubstr("needs_inject: "), HasSubstr("Python 3.11"),
                    HasSubstr("--inject loads it through a hook")));
}

TEST(LateLoadPlan, GoesByAHookWhereRemoteDebuggingIsSwitchedOff) {
  ProcessFacts process = Training();
  process.python = "314";
  process.remote_debug_off = true;
  EXPECT_EQ(Plan(process), "inject");
  EXPECT_THAT(Plan(process, Host(), Wish(false)),
              AllOf(HasSubstr("remote_debug_off: "), HasSubstr("PYTHON_DISABLE_REMOTE_DEBUG"),
                    HasSubstr("--inject")));
}

TEST(LateLoadPlan, TellsAProcessThatIsNotThereOrHasEnded) {
  ProcessFacts process = Training();
  process.exists = false;
  EXPECT_THAT(Plan(process), HasSubstr("no_process: there is no process 4711"));
  process = Training();
  process.state = 'Z';
  EXPECT_THAT(Plan(process), HasSubstr("ended: "));
}

TEST(LateLoadPlan, SendsToTheUserWhoseProcessItIs) {
  HostFacts host = Host();
  host.uid = 0;
  host.may_trace_all = true;
  EXPECT_THAT(Plan(Training(), host),
              AllOf(HasSubstr("other_user: "), HasSubstr("belongs to user ada"),
                    HasSubstr("'sudo -u ada nanwatch attach 4711'")));
}

TEST(LateLoadPlan, ExplainsWhatTheKernelForbidsByWhatForbidsIt) {
  ProcessFacts process = Training();
  process.trace_error = EPERM;
  process.readable = false;
  HostFacts host = Host();
  host.ptrace_scope = 0;
  EXPECT_THAT(Plan(process, host), HasSubstr("ptrace_denied: "));
  host.filtered = true;
  EXPECT_THAT(Plan(process, host),
              AllOf(HasSubstr("seccomp: "), HasSubstr("--cap-add=SYS_PTRACE")));
  for (const int scope : {1, 2}) {
    host.ptrace_scope = scope;
    EXPECT_THAT(Plan(process, host),
                AllOf(HasSubstr("ptrace_scope: "), HasSubstr("is " + std::to_string(scope)),
                      HasSubstr("sysctl kernel.yama.ptrace_scope=0")));
  }
  host.ptrace_scope = 3;
  EXPECT_THAT(Plan(process, host),
              AllOf(HasSubstr("ptrace_scope: "), HasSubstr("next boot"), Not(HasSubstr("sysctl"))));
  host.may_trace_all = true;
  EXPECT_THAT(Plan(process, host), HasSubstr("ptrace_denied: "));
}

TEST(LateLoadPlan, AStrictScopeIsNoMatterWhereTheKernelAllowsIt) {
  HostFacts host = Host();
  host.ptrace_scope = 1;
  EXPECT_EQ(Plan(Training(), host), "inject");
}

TEST(LateLoadPlan, SendsIntoContainers) {
  ProcessFacts process = Training();
  process.same_pid_namespace = false;
  process.inner_pid = 7;
  EXPECT_THAT(Plan(process), AllOf(HasSubstr("other_container: "), HasSubstr("it is process 7")));
  process = Training();
  process.sees_library = false;
  EXPECT_THAT(Plan(process), AllOf(HasSubstr("other_files: "), HasSubstr("mount namespace")));
  process = Training();
  process.sees_segments = false;
  EXPECT_THAT(Plan(process), AllOf(HasSubstr("other_files: "), HasSubstr("NANWATCH_DIR")));
}

TEST(LateLoadPlan, RefusesProgramsThatNothingCanBeLoadedInto) {
  ProcessFacts process = Training();
  process.elf->machine = EM_AARCH64;
  EXPECT_THAT(Plan(process), HasSubstr("architecture: "));
  process = Training();
  process.elf->is_64_bit = false;
  EXPECT_THAT(Plan(process), HasSubstr("architecture: "));
  process = Training();
  process.elf->interpreter = "/lib/ld-musl-x86_64.so.1";
  process.musl = true;
  EXPECT_THAT(Plan(process), AllOf(HasSubstr("musl: "), HasSubstr("glibc image")));
  process = Training();
  process.elf->interpreter = "";
  EXPECT_THAT(Plan(process), HasSubstr("static: "));
  process = Training();
  process.python = "";
  EXPECT_THAT(Plan(process), HasSubstr("no_python: "));
}

TEST(LateLoadPlan, RefusesWithoutATorchOrAnObserverForIt) {
  ProcessFacts process = Training();
  process.libtorch = "";
  EXPECT_THAT(Plan(process), AllOf(HasSubstr("no_torch: "), HasSubstr("attach once it has")));
  LateLoadWish wish = Wish();
  wish.torch_version = "2.12.0";
  EXPECT_THAT(Plan(Training(), Host(), wish),
              AllOf(HasSubstr("torch_unsupported: "), HasSubstr("torch 2.12.0"),
                    HasSubstr(" build-observer --python /usr/bin/python3.11")));
  wish.torch_version = "";
  EXPECT_THAT(Plan(Training(), Host(), wish), HasSubstr("torch_unknown: "));
}

TEST(LateLoadPlan, NeverLoadsTwiceAndKeepsOutWhereItIsAskedTo) {
  ProcessFacts process = Training();
  process.has_library = true;
  EXPECT_THAT(Plan(process), HasSubstr("already: "));
  process = Training();
  process.switched_off = true;
  EXPECT_THAT(Plan(process), AllOf(HasSubstr("switched_off: "), HasSubstr("NANWATCH=0")));
}

TEST(LateLoadPlan, SaysWhatKeepsAHookOut) {
  ProcessFacts process = Training();
  process.tracer_pid = 99;
  EXPECT_THAT(Plan(process), AllOf(HasSubstr("traced: "), HasSubstr("by process 99")));
  process.python = "314";  // which needs no hook
  EXPECT_EQ(Plan(process), "remote_exec");
  process = Training();
  process.seccomp = 1;
  EXPECT_THAT(Plan(process), HasSubstr("seccomp: "));
  process.seccomp = 2;  // as in every container
  EXPECT_EQ(Plan(process), "inject");
  process = Training();
  process.state = 'T';
  EXPECT_THAT(Plan(process), AllOf(HasSubstr("stopped: "), HasSubstr("kill -CONT 4711")));
  HostFacts host = Host();
  host.may_write_code = false;
  EXPECT_THAT(Plan(Training(), host),
              AllOf(HasSubstr("read_only_code: "), HasSubstr("proc_mem.force_override")));
}

TEST(ProcessFacts, AreReadFromProcsOwnText) {
  ProcessFacts facts;
  TakeStatus(
      "Name:\tpython\nState:\tT (stopped)\nTracerPid:\t12\nUid:\t5\t1000\t6\t7\n"
      "NSpid:\t4711\t12\t7\nSeccomp:\t2\n",
      facts);
  EXPECT_TRUE(facts.exists);
  EXPECT_EQ(facts.state, 'T');
  EXPECT_EQ(facts.tracer_pid, 12);
  EXPECT_EQ(facts.uid, 1000u);
  EXPECT_EQ(facts.inner_pid, 7);
  EXPECT_EQ(facts.seccomp, 2);
}

TEST(ProcessFacts, TellThePythonByWhatIsMapped) {
  const auto python = [](const std::string& path) {
    ProcessFacts facts;
    TakeMappings("7f00-7f01 r-xp 00000000 08:01 7   " + path + "\n", facts);
    return facts.python;
  };
  EXPECT_EQ(python("/usr/bin/python3.11"), "311");
  EXPECT_EQ(python("/opt/lib/libpython3.14t.so.1.0"), "314t");
  EXPECT_EQ(python("/v/torch/_C.cpython-313-x86_64-linux-gnu.so"), "313");
  EXPECT_EQ(python("/v/x.cpython-314t-x86_64-linux-gnu.so"), "314t");
  EXPECT_EQ(python("/usr/bin/bash"), "");
  EXPECT_EQ(python("/usr/lib/libpython-helper.so"), "");
}

TEST(ProcessFacts, TellTorchAndOurselvesByWhatIsMapped) {
  ProcessFacts facts;
  TakeMappings(
      "7f00-7f01 r-xp 00000000 08:01 7   /v/torch/lib/libtorch_cpu.so\n"
      "7f02-7f03 rw-p 00000000 00:00 0\n"
      "7f04-7f05 r-xp 00000000 08:01 7   /p/lib/libnanwatch.so (deleted)\n"
      "7f06-7f07 r-xp 00000000 08:01 7   /p/lib/nanwatch/libnanwatch_observer-2.11.so\n"
      "7f08-7f09 r-xp 00000000 08:01 7   /lib/ld-musl-x86_64.so.1\n",
      facts);
  EXPECT_EQ(facts.libtorch, "/v/torch/lib/libtorch_cpu.so");
  EXPECT_TRUE(facts.has_library);
  EXPECT_TRUE(facts.has_observer);
  EXPECT_TRUE(facts.musl);
}

TEST(ProcessFacts, TellHowItWasStarted) {
  using namespace std::string_literals;
  const auto start = [](const std::string& environment, const std::string& command) {
    ProcessFacts facts;
    TakeStart(environment, command, facts);
    return std::pair(facts.switched_off, facts.remote_debug_off);
  };
  EXPECT_EQ(start("A=1\0NANWATCH_DIR=0\0"s, "python\0t.py\0"s), std::pair(false, false));
  EXPECT_EQ(start("NANWATCH=0\0"s, ""), std::pair(true, false));
  EXPECT_EQ(start("PYTHON_DISABLE_REMOTE_DEBUG=1\0"s, ""), std::pair(false, true));
  EXPECT_EQ(start("", "python\0-X\0disable-remote-debug\0t.py\0"s), std::pair(false, true));
  EXPECT_EQ(start("", "python\0-Xdisable-remote-debug\0"s), std::pair(false, true));
}

const LateCall kCall = {.library = "/p/li\"b\\n.so",
                        .level = "idle",
                        .directory = "/dev/shm/o'k",
                        .answers = "/dev/shm/a"};

TEST(RemoteScript, IsPythonWhateverThePathsHold) {
  const std::string script = RemoteScript(kCall, "/dev/shm/é");
  EXPECT_THAT(script, HasSubstr("b'/dev/shm/o\\x27k'"));
  EXPECT_THAT(script, HasSubstr("b'/p/li\"b\\x5cn.so'"));
  EXPECT_THAT(script, HasSubstr("b'/dev/shm/\\xc3\\xa9'"));
}

}  // namespace
}  // namespace nanwatch
