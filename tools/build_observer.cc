// SPDX-License-Identifier: Apache-2.0
// The verb `build-observer`: the script that compiles the observer for another torch. It lies in
// the installation together with what it compiles.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/installation.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

constexpr char kBuildObserverHelp[] =
    "PYTHON is the interpreter that runs the training job. Its torch brings the headers; a C++ "
    "compiler,\n"
    "  cmake and ninja have to be there, or are installed where that is possible. It takes a "
    "minute or\n"
    "  two and needs to write to this installation.\n"
    "\n"
    "Example:\n"
    "  nanwatch build-observer --python .venv/bin/python\n"
    "\n"
    "Exit status: 0 built and installed, 1 not (the last lines say why), 2 wrong use.";

struct BuildOptions {
  std::string python;
  bool setup = true;
};

// Returns only when the script cannot be started.
int Build(const BuildOptions& options) {
  const Installation installation = LocateInstallation();
  const std::string script = BuildObserverScript(installation);
  std::vector<std::string> words = {script, "--python", options.python, "--prefix",
                                    PrefixOf(installation)};
  if (!options.setup) words.emplace_back("--no-setup");
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(script.c_str(), arguments.data());
  Say("cannot run " + script + ": " + std::strerror(errno) +
      "; install nanwatch again, or build the observer from the source tree");
  return kExitFailed;
}

}  // namespace

void AddBuildObserverVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand(
      "build-observer", "Compile the observer for the torch of a Python, and install it here.");
  SetHelp(*verb, "nanwatch build-observer --python PYTHON", kBuildObserverHelp);
  auto options = std::make_shared<BuildOptions>();
  verb->add_option("--python", options->python, "The Python that has this torch")
      ->type_name("PYTHON")
      ->required();
  verb->add_flag("!--no-setup", options->setup, "Install no packages");
  verb->callback([options, &call] { call.chosen = [options] { return Build(*options); }; });
}

}  // namespace nanwatch
