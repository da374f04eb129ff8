#include "tools/debugger.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <charconv>

#include "daemon/base/unique_fd.h"
#include "tools/process_facts.h"
#include "tools/program_output.h"
#include "tools/terminal.h"

namespace nanwatch {
namespace {

constexpr std::string_view kAnswerMark = "nanwatch-answer ";
constexpr std::string_view kErrorMark = "nanwatch-error ";
constexpr size_t kWordsMax = 200;

// As a C string of gdb's.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// What stands behind `mark` at the beginning of a line.
std::string Behind(const std::string& output, std::string_view mark) {
  size_t at = output.starts_with(mark) ? 0 : output.find("\n" + std::string(mark));
  if (at == std::string::npos) return "";
  at += mark.size() + (output[at] == '\n' ? 1 : 0);
  return output.substr(at, output.find('\n', at) - at);
}

// gdb's own words that say why, else its last line.
std::string ReasonIn(const std::string& output) {
  std::string last;
  for (size_t at = 0; at < output.size();) {
    const size_t end = std::min(output.find('\n', at), output.size());
    const std::string line = output.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("ptrace: ") || line.find("Could not attach") != std::string::npos)
      return line.substr(0, kWordsMax);
    if (!line.empty()) last = line;
  }
  return last.empty() ? "it said nothing" : last.substr(0, kWordsMax);
}

// Signals that would end us wait as long as this lives, and are seen by a descriptor.
class EndHeldBack {
 public:
  EndHeldBack() {
    sigset_t ends;
    sigemptyset(&ends);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&ends, signal);
    sigprocmask(SIG_BLOCK, &ends, &before_);
    readable_ = UniqueFd(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~EndHeldBack() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  EndHeldBack(const EndHeldBack&) = delete;
  EndHeldBack& operator=(const EndHeldBack&) = delete;

  [[nodiscard]] int readable() const { return readable_.get(); }

 private:
  sigset_t before_;
  UniqueFd readable_;
};

// A file without a name, to be read as /dev/fd/N by the program that inherits it.
UniqueFd Unnamed(const std::string& text) {
  UniqueFd fd(memfd_create("nanwatch-gdb", 0));
  if (fd.valid() && (!WriteAll(fd.get(), text) || lseek(fd.get(), 0, SEEK_SET) != 0)) fd.Close();
  return fd;
}

}  // namespace

std::string DebuggerScript(const LateCall& call) {
  // The types are given with each call: there may be no debug information at all.
  return "set breakpoint pending off\n"
         "set pagination off\n"
         "set width 0\n"
         "handle all nostop noprint pass\n"
         "handle SIGINT nostop noprint pass\n"
         "handle SIGSTOP nostop noprint nopass\n"
         "sharedlibrary /libc\\.so\n"
         "sharedlibrary /libc-2\n"
         "sharedlibrary /libdl[.-]\n"
         "sharedlibrary /libpython3\n"
         "set $save = (long)&PyEval_SaveThread\n"
         "set $check = (long)&PyCallable_Check\n"
         "call ((int(*)(void*,void*))&Py_AddPendingCall)((void*)$check, (void*)0)\n"
         "tbreak *$save\n"
         "tbreak *$check\n"
         "handle SIGSTOP stop print nopass\n"
         "continue\n"
         "handle SIGSTOP nostop noprint nopass\n"
         "delete\n"
         "if $pc == $save || $pc == $check\n"
         "set $library = ((void*(*)(const char*,int))&dlopen)(" +
         Quoted(call.library) +
         ", 2)\n"
         "if $library == 0\n"
         "printf \"" +
         std::string(kErrorMark) +
         "%s\\n\", ((char*(*)(void))&dlerror)()\n"
         "else\n"
         "set $attach = ((void*(*)(void*,const char*))&dlsym)($library, "
         "\"nanwatch_entry_attach\")\n"
         "printf \"" +
         std::string(kAnswerMark) +
         "%d\\n\", ((int(*)(const char*,const char*,const char*))$attach)(" + Quoted(call.level) +
         ", " + Quoted(call.directory) + ", " + Quoted(call.answers) +
         ")\n"
         "end\n"
         "end\n"
         "detach\n";
}

DebuggerResult ReadDebuggerOutput(const std::string& output) {
  DebuggerResult result;
  const std::string answer = Behind(output, kAnswerMark);
  const auto [end, error] =
      std::from_chars(answer.data(), answer.data() + answer.size(), result.answer);
  result.called = error == std::errc() && !answer.empty();
  if (result.called) return result;
  if (const std::string reason = Behind(output, kErrorMark); !reason.empty()) {
    result.problem = "its loader refused the library: " + reason;
  } else {
    result.problem = "gdb could not do it: " + ReasonIn(output);
  }
  return result;
}

DebuggerResult LoadByDebugger(const std::string& gdb, int pid, const LateCall& call,
                              const EnvironmentBlock& outside, std::chrono::milliseconds limit) {
  const UniqueFd script = Unnamed(DebuggerScript(call));
  if (!script.valid()) return {.problem = "no memory for gdb's script"};
  EnvironmentBlock environment = outside;
  environment.Unset("DEBUGINFOD_URLS");
  EndHeldBack end;
  const ProgramManners manners = {.ask_to_leave =
                                      [pid] {
                                        if (TracerOf(pid) != 0) kill(pid, SIGSTOP);
                                      },
                                  .cancel = end.readable()};
  const ProgramOutput output = RunAndRead(
      {gdb, "-batch", "-nx", "-iex", "set auto-load off", "-iex", "set auto-solib-add off", "-p",
       std::to_string(pid), "-x", "/dev/fd/" + std::to_string(script.get())},
      environment, limit, &manners);
  // When it came too late for gdb, it came through, or will.
  if (output.timed_out && output.still_running == 0) kill(pid, SIGCONT);
  DebuggerResult result = ReadDebuggerOutput(output.text);
  result.in_time = !output.timed_out;
  result.debugger_left = output.still_running;
  return result;
}

}  // namespace nanwatch
