// SPDX-License-Identifier: Apache-2.0
#include "tools/python_probe.h"

#include <cctype>
#include <chrono>

#include "tools/command.h"
#include "tools/elf_interpreter.h"
#include "tools/program_output.h"

namespace nanwatch {
namespace {

constexpr std::chrono::seconds kProbeTimeout{20};

// One fact a line. -P and friends are not used: the job's own sys.path is what counts.
constexpr char kScript[] =
    "import sys, os, re, importlib.util\n"
    "print(sys.executable)\n"
    "print('%d.%d.%d' % sys.version_info[:3])\n"
    "spec = importlib.util.find_spec('torch')\n"
    "place = os.path.dirname(spec.origin) if spec and spec.origin else ''\n"
    "text = open(os.path.join(place, 'version.py')).read() if place else ''\n"
    "found = re.search(r'__version__\\s*=\\s*[\\'\"]([^\\'\"]+)', text)\n"
    "print(found.group(1) if found else '')\n"
    "print(place)\n"
    "names = getattr(os, 'confstr_names', {})\n"
    "libc = os.confstr('CS_GNU_LIBC_VERSION') if 'CS_GNU_LIBC_VERSION' in names else None\n"
    "print((libc or '').replace('glibc ', ''))\n";

std::string TakeLine(std::string& text) {
  const size_t end = text.find('\n');
  const std::string line = text.substr(0, end);
  text.erase(0, end == std::string::npos ? text.size() : end + 1);
  return line;
}

}  // namespace

PythonProbe ProbePython(const std::string& python, const EnvironmentBlock& outside) {
  PythonProbe probe;
  const CommandLookup lookup = FindCommand(python, outside.Text("PATH"));
  if (lookup.exit_code != 0) {
    probe.problem = lookup.message;
    return probe;
  }
  ProgramOutput output = RunAndRead({lookup.path, "-c", kScript}, outside, kProbeTimeout);
  if (!output.ended_well) {
    probe.problem = "'" + lookup.path +
                    "' did not say which torch it has: it failed, or took longer "
                    "than 20 s";
    return probe;
  }
  probe.executable = TakeLine(output.text);
  probe.python_version = TakeLine(output.text);
  probe.torch_version = TakeLine(output.text);
  probe.torch_dir = TakeLine(output.text);
  probe.glibc = TakeLine(output.text);
  probe.interpreter = ElfInterpreter(probe.executable).value_or("unknown");
  return probe;
}

std::string MinorOf(const std::string& torch_version) {
  size_t at = 0;
  while (at < torch_version.size() && isdigit(static_cast<unsigned char>(torch_version[at]))) ++at;
  if (at == 0 || at == torch_version.size() || torch_version[at] != '.') return "";
  const size_t minor = ++at;
  while (at < torch_version.size() && isdigit(static_cast<unsigned char>(torch_version[at]))) ++at;
  return at == minor ? "" : torch_version.substr(0, at);
}

std::string ObserverMinor(const std::string& file_name) {
  constexpr std::string_view kBefore = "libnanwatch_observer-";
  constexpr std::string_view kAfter = ".so";
  if (!file_name.starts_with(kBefore) || !file_name.ends_with(kAfter)) return "";
  const std::string version =
      file_name.substr(kBefore.size(), file_name.size() - kBefore.size() - kAfter.size());
  return MinorOf(version) == version ? version : "";
}

std::vector<std::string> ObserverMinors(const Installation& installation) {
  std::vector<std::string> minors;
  for (const std::string& file : ObserverFiles(installation)) {
    if (std::string minor = ObserverMinor(file); !minor.empty()) minors.push_back(std::move(minor));
  }
  return minors;
}

}  // namespace nanwatch
