// SPDX-License-Identifier: Apache-2.0
// The verb `doctor`: whether a job started here would be observed, and if not, why not.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/doctor_checks.h"
#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kDoctorHelp[] =
    "Each line is ok, warn (it works, with a limit) or FAIL (a job would not be observed), and "
    "says what\n"
    "  to do. Run it as the job's user, in the job's container, with the job's Python.\n"
    "\n"
    "Examples:\n"
    "  nanwatch doctor\n"
    "  nanwatch doctor --python .venv/bin/python --json\n"
    "  nanwatch doctor --ranks 8\n"
    "\n"
    "Exit status: 0 usable (warnings included), 1 not.\n"
    "Environment: as for the job; NANWATCH, NANWATCH_DIR, NANWATCH_STATE_DIR, LD_PRELOAD.";

struct DoctorOptions {
  std::string python;
  int ranks = 0;
  bool json = false;
};

const char* WordFor(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kWarn:
      return "warn";
    case Health::kFail:
      return "FAIL";
  }
  return "";
}

std::string AsText(const Checks& checks, bool usable, bool color) {
  std::string text;
  for (const Check& check : checks) {
    const char* paint = check.health == Health::kOk     ? "\033[32m"
                        : check.health == Health::kWarn ? "\033[33m"
                                                        : "\033[31m";
    std::string word = WordFor(check.health);
    word.resize(4, ' ');
    std::string name = check.name;
    name.resize(std::max<size_t>(name.size(), 12), ' ');
    text += (color ? paint + word + "\033[0m" : word) + "  " + name + "  " + check.text + "\n";
  }
  text += usable ? "A job started here is observed: nanwatch run -- python train.py\n"
                 : "A job started here would not be observed: see FAIL above\n";
  return text;
}

std::string AsJson(const Checks& checks, bool usable) {
  Json document = {{"schema", "nanwatch.doctor/1"}, {"usable", usable}, {"checks", Json::array()}};
  for (const Check& check : checks) {
    std::string word = WordFor(check.health);
    if (check.health == Health::kFail) word = "fail";
    document["checks"].push_back({{"name", check.name}, {"state", word}, {"text", check.text}});
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int Doctor(const DoctorOptions& options) {
  const Checks checks = Examine(options.python, options.ranks);
  const bool usable = std::none_of(checks.begin(), checks.end(), [](const Check& check) {
    return check.health == Health::kFail;
  });
  return PrintAndExit(
      options.json ? AsJson(checks, usable) : AsText(checks, usable, WantsColor(STDOUT_FILENO)),
      usable ? kExitOk : kExitFailed);
}

}  // namespace

void AddDoctorVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand(
      "doctor", "Check whether a job started here would be observed, and if not, why.");
  SetHelp(*verb, "nanwatch doctor [OPTIONS]", kDoctorHelp);
  auto options = std::make_shared<DoctorOptions>();
  verb->add_option("--python", options->python, "The job's Python (default: python on PATH)")
      ->type_name("PYTHON");
  verb->add_option("--ranks", options->ranks,
                   "Processes with torch that a job has on this host (default: LOCAL_WORLD_SIZE, "
                   "SLURM_NTASKS_PER_NODE, the GPUs, the cores)")
      ->type_name("N")
      ->check(CLI::Range(1, 100'000));
  verb->add_flag("--json", options->json, "Print a JSON document (nanwatch.doctor/1)");
  verb->callback([options, &call] { call.chosen = [options] { return Doctor(*options); }; });
}

}  // namespace nanwatch
