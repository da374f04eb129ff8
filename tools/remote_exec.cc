// SPDX-License-Identifier: Apache-2.0
#include "tools/remote_exec.h"

#include <fmt/format.h>

#include "tools/program_output.h"

namespace nanwatch {
namespace {

constexpr std::string_view kAsked = "nanwatch asked\n";

// A bytes literal of Python's.
std::string Literal(const std::string& text) {
  std::string literal = "b'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte > '~' || c == '\'' || c == '\\') {
      literal += fmt::format("\\x{:02x}", byte);
    } else {
      literal += c;
    }
  }
  return literal + "'";
}

}  // namespace

std::string RemoteScript(const LateCall& call, const std::string& script_path) {
  return "def load():\n"
         "    import os\n"
         "    try:\n"
         "        os.unlink(" +
         Literal(script_path) +
         ")\n"
         "        import ctypes\n"
         "        library = ctypes.CDLL(os.fsdecode(" +
         Literal(call.library) +
         "))\n"
         "        said = 'attach %d' % library.nanwatch_entry_attach(" +
         Literal(call.level) + ", " + Literal(call.directory) + ", " + Literal(call.answers) +
         ")\n"
         "    except Exception as error:\n"
         "        said = 'error %s: %s' % (type(error).__name__, error)\n"
         "    try:\n"
         "        answers = os.open(" +
         Literal(call.answers) +
         ", os.O_WRONLY | os.O_APPEND)\n"
         "        os.write(answers, (' '.join(said.split()) + '\\n').encode())\n"
         "        os.close(answers)\n"
         "    except OSError:\n"
         "        pass\n"
         "load()\n";
}

std::string AskRemoteExec(const std::string& python, int pid, const std::string& script_path,
                          const EnvironmentBlock& outside, std::chrono::milliseconds limit) {
  const std::string program =
      "import os, sys\n"
      "try:\n"
      "    sys.remote_exec(" +
      std::to_string(pid) + ", os.fsdecode(" + Literal(script_path) +
      "))\n"
      "    print('nanwatch asked')\n"
      "except Exception as error:\n"
      "    print(type(error).__name__, error, sep=': ')\n";
  // Neither the user's site packages nor his PYTHON* variables are needed, and they may do
  // anything.
  const ProgramOutput output = RunAndRead({python, "-I", "-S", "-c", program}, outside, limit);
  if (output.text.ends_with(kAsked)) return "";
  if (output.timed_out)
    return "because its own interpreter, " + python + ", did not answer in time";
  if (!output.ended_well)
    return "because its executable, " + python + ", is not an interpreter that can ask it";
  return "because sys.remote_exec refused: " + output.text.substr(0, output.text.find('\n'));
}

}  // namespace nanwatch
