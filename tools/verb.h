// SPDX-License-Identifier: Apache-2.0
// How a verb hooks into the command line: each adds its subcommand with options and help, and, when
// it is the one that was typed, leaves behind what to do. Nothing runs while the command line is
// still being read.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/config/configuration.h"

namespace CLI {
class App;
}

namespace nanwatch {

struct VerbCall {
  std::vector<std::string> command;  // the words after "--"
  Configuration configuration;       // what the files say
  std::function<int()> chosen;       // the verb's work; its value is the exit code
};

void AddRunVerb(CLI::App& app, VerbCall& call);
void AddPsVerb(CLI::App& app, VerbCall& call);
void AddTopVerb(CLI::App& app, VerbCall& call);
void AddTailVerb(CLI::App& app, VerbCall& call);
void AddReportVerb(CLI::App& app, VerbCall& call);
void AddAttachVerbs(CLI::App& app, VerbCall& call);  // attach and detach
void AddCapsuleVerb(CLI::App& app, VerbCall& call);
void AddReplayVerb(CLI::App& app, VerbCall& call);
void AddServeVerb(CLI::App& app, VerbCall& call);
void AddFleetVerb(CLI::App& app, VerbCall& call);
void AddForwardVerb(CLI::App& app, VerbCall& call);
void AddExportVerb(CLI::App& app, VerbCall& call);
void AddConfigVerb(CLI::App& app, VerbCall& call);
void AddBuildObserverVerb(CLI::App& app, VerbCall& call);
void AddCompletionVerb(CLI::App& app, VerbCall& call);
void AddDoctorVerb(CLI::App& app, VerbCall& call);
void AddGcVerb(CLI::App& app, VerbCall& call);

}  // namespace nanwatch
