// SPDX-License-Identifier: Apache-2.0
#include "tools/dispatch.h"

#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "daemon/base/command_line.h"
#include "daemon/config/configuration.h"
#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/terminal.h"
#include "tools/verb.h"
#include "tools/version.h"

namespace {

using nanwatch::Say;

const std::vector<std::string> kVerbs = {
    "run",     "ps",     "top",    "tail",  "report",         "replay",
    "capsule", "attach", "detach", "serve", "export",         "forward",
    "fleet",   "config", "doctor", "gc",    "build-observer", "completion"};

std::string Footer() {
  return std::string(
             "Examples:\n"
             "  nanwatch run -- python train.py     watch a job, and read the report when it ends\n"
             "  nanwatch top                        watch live jobs\n"
             "  nanwatch report --check             exit status by verdict, for CI\n"
             "  nanwatch attach 12345 --for 10m     check a running job more closely\n"
             "  nanwatch serve                      pages and metrics on 127.0.0.1:9464\n"
             "  nanwatch doctor                     find out why nothing was observed\n"
             "  nanwatch gc                         remove what crashes have left\n"
             "  nanwatch run --help                 each verb has its own help\n"
             "\n") +
         nanwatch::kExitCodesHelp +
         "\n"
         "Environment, all optional: NANWATCH=0 switches nanwatch off; NANWATCH_DIR is the "
         "directory of the\n"
         "  segments (default /dev/shm/nanwatch-UID, in a container with -KEY), NANWATCH_STATE_DIR "
         "that of the\n"
         "  database and logs (default ~/.local/state/nanwatch/HOST); NANWATCH_JOB, "
         "NANWATCH_LEVEL,\n"
         "  NANWATCH_BUDGET, NANWATCH_IGNORE, NANWATCH_LOG; NANWATCH_CONFIG, a nanwatch.toml with "
         "the same\n"
         "  settings ('nanwatch config' shows which hold); NO_COLOR.";
}

bool IsVerb(const std::vector<std::string>& words) {
  return !words.empty() && std::find(kVerbs.begin(), kVerbs.end(), words[0]) != kVerbs.end();
}

// What a person probably meant by words that were not understood.
std::string Advice(const std::vector<std::string>& words, bool has_command) {
  if (words.empty()) return "no verb was given: 'nanwatch --help' lists them";
  const std::string& verb = words[0];
  if (verb == "run" && !has_command) {
    return "put the command after '--': nanwatch run [OPTIONS] -- COMMAND [ARGUMENTS...]";
  }
  if (verb.starts_with('-') || IsVerb(words)) return "";
  const std::string near = nanwatch::NearestWord(verb, kVerbs);
  return "there is no verb '" + verb + "'" +
         (near.empty() ? ": " : "; did you mean '" + near + "'? ") + "'nanwatch --help' lists them";
}

int ExplainWrongUse(const std::vector<std::string>& words, bool has_command,
                    const std::string& complaint) {
  const std::string advice = Advice(words, has_command);
  const bool is_report = !words.empty() && words[0] == "report";
  const bool is_verb = IsVerb(words);
  if (is_verb || advice.empty()) Say(complaint);
  if (!advice.empty()) Say(advice);
  if (is_verb) Say("'nanwatch " + words[0] + " --help' shows the usage");
  return is_report ? nanwatch::kExitUsageOfReport : nanwatch::kExitUsage;
}

// We parse what is before "--"; what is after it is the command, word for word.
std::vector<std::string> SplitOffCommand(int argc, char** argv, std::vector<std::string>& command) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto split = std::find(words.begin(), words.end(), "--");
  if (words.empty() || words[0] != "run" || split == words.end()) return words;
  command.assign(split + 1, words.end());
  words.erase(split, words.end());
  return words;
}

// 'nanwatch help' and 'nanwatch help VERB', as many tools have them.
std::vector<std::string> AsHelpFlag(std::vector<std::string> words) {
  if (words.empty() || words.size() > 2 || words[0] != "help") return words;
  words.erase(words.begin());
  if (words.empty() || IsVerb(words)) words.push_back("--help");
  return words;
}

// Lets the settings of the files hold. False: one of them cannot be followed; it was said why.
bool Configure(const std::string& verb, nanwatch::Configuration& configuration) {
  nanwatch::Result<nanwatch::Configuration> read = nanwatch::ReadConfiguration();
  if (!read.ok()) {
    Say(read.status().message());
    return false;
  }
  configuration = *std::move(read);
  for (const std::string& note : configuration.notes) Say(note);
  if (verb != "config") nanwatch::ApplyConfiguration(configuration, verb);
  return true;
}

// Help has to be had whatever the files say.
bool AsksForHelp(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

}  // namespace

namespace nanwatch {

int Dispatch(int argc, char** argv) {
  VerbCall call;
  const std::vector<std::string> words = AsHelpFlag(SplitOffCommand(argc, argv, call.command));
  CLI::App app("Find the op, layer and step where a PyTorch job's first NaN or Inf was made.",
               "nanwatch");
  SetHelp(app, "nanwatch VERB [OPTIONS]", Footer());
  bool version = false;
  bool json = false;
  app.add_flag("--version", version, "Print version, wire format and observers");
  app.add_flag("--json", json, "With --version: as a JSON document")->needs("--version");
  AddRunVerb(app, call);
  AddPsVerb(app, call);
  AddTopVerb(app, call);
  AddTailVerb(app, call);
  AddReportVerb(app, call);
  AddReplayVerb(app, call);
  AddCapsuleVerb(app, call);
  AddAttachVerbs(app, call);
  AddServeVerb(app, call);
  AddForwardVerb(app, call);
  AddFleetVerb(app, call);
  AddExportVerb(app, call);
  AddConfigVerb(app, call);
  AddDoctorVerb(app, call);
  AddGcVerb(app, call);
  AddBuildObserverVerb(app, call);
  AddCompletionVerb(app, call);
  if (IsVerb(words) && !AsksForHelp(words) && !Configure(words[0], call.configuration))
    return words[0] == "report" ? kExitUsageOfReport : kExitUsage;
  try {
    app.parse(
        std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them last first
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return ExplainWrongUse(words, !call.command.empty(), PlainComplaint(error.what()));
  }
  if (version) return PrintVersion(json);
  if (!call.chosen) return ExplainWrongUse(words, false, "");
  return call.chosen();
}

}  // namespace nanwatch
