// SPDX-License-Identifier: Apache-2.0
// The verb `replay`: runs the op of a capsule again.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "tools/capsule/capsule.h"
#include "tools/capsule/completion.h"
#include "tools/command.h"
#include "tools/environment_block.h"
#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/places.h"
#include "tools/program_output.h"
#include "tools/terminal.h"
#include "tools/verb.h"
#include "tools/whole_file.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::minutes kPatience{10};

constexpr char kReplayHelp[] =
    "Runs the op that made the first NaN or Inf again, with the inputs that it had, and says "
    "where the bad\n"
    "  value comes from:\n"
    "  mathematics     the same in float64: these numbers have no finite result\n"
    "  range           finite in float64: a number does not fit the tensor's type\n"
    "  kernel_fault    it differs between runs, or between kernels, on this machine\n"
    "  not_reproduced  finite every time: what made it bad is not in the op's inputs\n"
    "  cannot_run      the op could not be run here\n"
    "CAPSULE is a folder, a capsule's name, or its beginning (a run's id will do); default: the "
    "newest.\n"
    "\n"
    "Examples:\n"
    "  nanwatch run --capsule op -- python train.py\n"
    "  nanwatch replay\n"
    "  nanwatch replay 7f3a --times 100 --json\n"
    "\n"
    "Exit status: 0 reproduced; 2 not reproduced; 3 cannot tell; 1 no such capsule.\n"
    "Environment: NANWATCH_STATE_DIR.";

struct ReplayOptions {
  std::string capsule;
  std::string python;
  int times = 5;
  std::vector<std::string> imports;
  bool json = false;
};

Json CannotRun(const Capsule& capsule, const std::string& why) {
  return {{"schema", "nanwatch.replay/1"},
          {"op", capsule.op},
          {"word", "cannot_run"},
          {"sentence", "It cannot be run: " + why + "."}};
}

// The interpreter that ran the job, or the one that was asked for; "" when there is none.
// A capsule of somebody else's does not say what is executed here.
std::string PythonFor(const ReplayOptions& options, const Capsule& capsule,
                      const std::string& directory) {
  const bool is_ours = capsule.path.starts_with(directory + "/") && capsule.python.starts_with("/");
  if (options.python.empty() && is_ours && access(capsule.python.c_str(), X_OK) == 0) {
    return capsule.python;
  }
  const std::string wanted = options.python.empty() ? "python3" : options.python;
  const CommandLookup found = FindCommand(wanted, EnvironmentBlock::OfThisProcess().Text("PATH"));
  return found.exit_code == 0 ? found.path : "";
}

Json RunAgain(const ReplayOptions& options, const Capsule& capsule, const std::string& directory) {
  if (!capsule.can_run) return CannotRun(capsule, "its inputs were not kept: " + capsule.why_not);
  const std::string python = PythonFor(options, capsule, directory);
  if (python.empty()) {
    return CannotRun(capsule, "there is no Python for it; name one that has torch with --python");
  }
  // Our own copy of the program, whatever stands in the folder.
  const std::string program = directory + "/repro_op.py";
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!WriteWholeFile(program, kReproProgram)) {
    return CannotRun(capsule, "'" + program + "' cannot be written");
  }
  std::vector<std::string> argv = {python,      "-I",        program,
                                   "--json",    "--times",   std::to_string(options.times),
                                   "--capsule", capsule.path};
  for (const std::string& file : options.imports) {
    argv.emplace_back("--import");
    argv.push_back(file);
  }
  Say("running " + capsule.op + " again, " + std::to_string(options.times) + " times, with " +
      python);
  const ProgramOutput output = RunAndRead(argv, EnvironmentBlock::OfThisProcess(), kPatience);
  if (output.timed_out) return CannotRun(capsule, "it did not end within 10 minutes");
  Json result = Json::parse(output.text, nullptr, false);
  if (!result.is_object() || !result.contains("word") || !result["word"].is_string()) {
    return CannotRun(capsule,
                     "'" + python + "' gave no answer; has it torch? --python names another");
  }
  return result;
}

int ExitCodeOf(const std::string& word) {
  if (word == "not_reproduced") return kExitNotReproduced;
  return word == "cannot_run" ? kExitCannotTell : kExitOk;
}

std::string AsText(const Capsule& capsule, const Json& result) {
  std::string text = capsule.name + "  " + capsule.op + ": " + result["word"].get<std::string>() +
                     "\n" + result.value("sentence", "") + "\n";
  const auto run = result.find("as_it_was");
  if (run != result.end() && run->is_object()) {
    text += "Runs: " + run->value("times", Json(0)).dump() +
            "; bad at the same places: " + run->value("same_places", Json(0)).dump() +
            "; the same bits: " + run->value("same_bits", Json(0)).dump() +
            ". Inputs: " + result.value("inputs", "") + ".\n";
  }
  for (const Json& difference : result.value("differences", Json::array())) {
    if (difference.is_string()) text += "Not as it was: " + difference.get<std::string>() + ".\n";
  }
  return text;
}

int Replay(const ReplayOptions& options) {
  const Places places = FindPlaces(ProcessEnvironment());
  const std::string directory = CapsuleDirectory(places.state_dir);
  for (const std::string& problem : CompleteCapsules(directory)) Say(problem);
  const Result<Capsule> capsule = FindCapsule(directory, options.capsule);
  if (!capsule.ok()) {
    Say(capsule.status().message());
    return kExitFailed;
  }
  Json result = RunAgain(options, *capsule, directory);
  result["capsule"] = capsule->path;
  const std::string text = result.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  // For the next report. A capsule that was carried elsewhere may be one that cannot be written to.
  (void)WriteWholeFile(capsule->path + "/replay.json", text);
  return PrintAndExit(options.json ? text : AsText(*capsule, result),
                      ExitCodeOf(result["word"].get<std::string>()));
}

}  // namespace

void AddReplayVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand(
      "replay", "Run the op that went bad first again, and say where its NaN or Inf comes from.");
  SetHelp(*verb, "nanwatch replay [CAPSULE] [OPTIONS]", kReplayHelp);
  auto options = std::make_shared<ReplayOptions>();
  verb->add_option("CAPSULE", options->capsule, "A folder, a name, or the beginning of one")
      ->type_name("");
  verb->add_option("--times", options->times, "How often it is run as it was (default 5)")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  verb->add_option("--python", options->python,
                   "A Python with torch (default: the one that ran the job)")
      ->type_name("PYTHON");
  verb->add_option("--import", options->imports,
                   "A Python file that registers custom ops; may be given more than once")
      ->type_name("FILE")
      ->allow_extra_args(false);
  verb->add_flag("--json", options->json, "Print a JSON document (nanwatch.replay/1)");
  verb->callback([options, &call] { call.chosen = [options] { return Replay(*options); }; });
}

}  // namespace nanwatch
