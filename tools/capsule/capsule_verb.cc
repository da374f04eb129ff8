// SPDX-License-Identifier: Apache-2.0
// The verb `capsule`: what was kept of origins.
#include <sys/stat.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/capsule/capsule.h"
#include "tools/capsule/completion.h"
#include "tools/environment_block.h"
#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/places.h"
#include "tools/start_process.h"
#include "tools/table.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kCapsuleHelp[] =
    "A capsule holds the op that made the first NaN or Inf, with its inputs, so that it can be run "
    "again.\n"
    "  'nanwatch run --capsule op -- COMMAND' writes them; 'nanwatch replay CAPSULE' runs one.\n"
    "CAPSULE is a folder, a capsule's name, or its beginning (a run's id will do).\n"
    "\n"
    "Examples:\n"
    "  nanwatch capsule ls\n"
    "  nanwatch capsule show 7f3a\n"
    "  nanwatch capsule verify\n"
    "  nanwatch capsule pack 7f3a origin.tar\n"
    "\n"
    "A capsule holds values of your training: inputs of the op, which may be data or weights. Only "
    "you can\n"
    "  read it (mode 0600).\n"
    "\n"
    "Exit status: 0; 1 no such capsule, or one that does not verify.\n"
    "Environment: NANWATCH_STATE_DIR.";

struct CapsuleOptions {
  std::string capsule;
  std::string file;
  bool json = false;
};

std::string Directory() {
  const Places places = FindPlaces(ProcessEnvironment());
  std::string directory = CapsuleDirectory(places.state_dir);
  for (const std::string& problem : CompleteCapsules(directory)) Say(problem);
  return directory;
}

Json AsJson(const Capsule& capsule) {
  return {
      {"name", capsule.name},       {"path", capsule.path},          {"run", capsule.run},
      {"op", capsule.op},           {"layer", capsule.layer},        {"phase", capsule.phase},
      {"torch", capsule.torch},     {"bytes", capsule.tensor_bytes}, {"can_run", capsule.can_run},
      {"why_not", capsule.why_not}, {"replay", capsule.word}};
}

std::string StateOf(const Capsule& capsule) {
  if (!capsule.can_run) return "cannot run: " + capsule.why_not;
  return capsule.word.empty() ? "not run again yet" : capsule.word;
}

int List(const CapsuleOptions& options) {
  std::vector<Capsule> capsules = ReadCapsules(Directory());
  std::erase_if(capsules, [&options](const Capsule& capsule) {
    return !capsule.name.starts_with(options.capsule);
  });
  if (options.json) {
    Json document = {{"schema", "nanwatch.capsules/1"}, {"capsules", Json::array()}};
    for (const Capsule& capsule : capsules) document["capsules"].push_back(AsJson(capsule));
    return PrintAndExit(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n",
                        kExitOk);
  }
  if (capsules.empty()) {
    Say("there is no capsule: 'nanwatch run --capsule op -- COMMAND' writes them when something "
        "goes bad");
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows;
  for (const Capsule& capsule : capsules) {
    rows.push_back({capsule.name, capsule.op, capsule.layer.empty() ? "-" : capsule.layer,
                    std::to_string(capsule.tensor_bytes), StateOf(capsule)});
  }
  return PrintAndExit(
      FormatTable({{"CAPSULE"}, {"OP"}, {"LAYER"}, {"BYTES", true}, {"REPLAY"}}, rows), kExitOk);
}

int Show(const CapsuleOptions& options) {
  const Result<Capsule> capsule = FindCapsule(Directory(), options.capsule);
  if (!capsule.ok()) {
    Say(capsule.status().message());
    return kExitFailed;
  }
  if (options.json) {
    return PrintAndExit(AsJson(*capsule).dump(2, ' ', false, Json::error_handler_t::replace) + "\n",
                        kExitOk);
  }
  const std::string text =
      capsule->path + "\n" + capsule->op + ", " + capsule->phase +
      (capsule->layer.empty() ? "" : ", layer " + capsule->layer) + "\ntorch " + capsule->torch +
      ", " + std::to_string(capsule->tensor_bytes) + " bytes\n" + StateOf(*capsule) + "\n";
  return PrintAndExit(text, kExitOk);
}

int Verify(const CapsuleOptions& options) {
  const std::string directory = Directory();
  std::vector<Capsule> capsules = ReadCapsules(directory);
  if (!options.capsule.empty()) {
    const Result<Capsule> one = FindCapsule(directory, options.capsule);
    if (!one.ok()) {
      Say(one.status().message());
      return kExitFailed;
    }
    capsules = {*one};
  }
  std::string text;
  bool all_fine = true;
  for (const Capsule& capsule : capsules) {
    const Status status = VerifyCapsule(capsule);
    all_fine = all_fine && status.ok();
    text += capsule.name + ": " + (status.ok() ? "fine" : status.message()) + "\n";
  }
  return PrintAndExit(text, all_fine ? kExitOk : kExitFailed);
}

int Pack(const CapsuleOptions& options) {
  const Result<Capsule> capsule = FindCapsule(Directory(), options.capsule);
  if (!capsule.ok()) {
    Say(capsule.status().message());
    return kExitFailed;
  }
  const std::string parent = capsule->path.substr(0, capsule->path.rfind('/'));
  const std::string file = options.file.empty() ? capsule->name + ".tar" : options.file;
  umask(077);  // it holds values
  const StartedProcess tar = StartProcess(
      {.argv = {"tar", "-C", parent.empty() ? "." : parent, "-cf", file, capsule->name},
       .environment = EnvironmentBlock::OfThisProcess().Assignments(),
       .looks_in_path = true});
  const std::optional<int> status = tar.error == 0 ? AwaitProcess(tar.pid) : std::nullopt;
  if (status != 0) {
    Say("'" + file + "' could not be written by tar");
    return kExitFailed;
  }
  return PrintAndExit(file + "\n", kExitOk);
}

void AddCall(CLI::App* verb, const std::shared_ptr<CapsuleOptions>& options, VerbCall& call,
             int (*work)(const CapsuleOptions&)) {
  verb->callback(
      [options, &call, work] { call.chosen = [options, work] { return work(*options); }; });
}

}  // namespace

void AddCapsuleVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand("capsule", "List, check and pack what was kept of origins.");
  SetHelp(*verb, "nanwatch capsule ls|show|verify|pack [CAPSULE] [OPTIONS]", kCapsuleHelp);
  verb->require_subcommand(1);
  auto options = std::make_shared<CapsuleOptions>();
  const auto add = [&](const char* name, const char* what, const char* usage) {
    CLI::App* added = verb->add_subcommand(name, what);
    SetHelp(*added, usage, "");
    added->add_option("CAPSULE", options->capsule, "A folder, a name, or the beginning of one")
        ->type_name("");
    return added;
  };
  CLI::App* list = add("ls", "List capsules.", "nanwatch capsule ls [RUN] [--json]");
  list->add_flag("--json", options->json, "Print a JSON document (nanwatch.capsules/1)");
  CLI::App* show =
      add("show", "Show one (default: the newest).", "nanwatch capsule show [CAPSULE] [--json]");
  show->add_flag("--json", options->json, "Print it as JSON");
  CLI::App* verify = add("verify", "Check that files are what the job wrote (default: all).",
                         "nanwatch capsule verify [CAPSULE]");
  CLI::App* pack = add("pack", "Put one into an archive, to take it to another machine.",
                       "nanwatch capsule pack [CAPSULE] [FILE]");
  pack->add_option("FILE", options->file, "The archive (default: the capsule's name and .tar)")
      ->type_name("");
  AddCall(list, options, call, &List);
  AddCall(show, options, call, &Show);
  AddCall(verify, options, call, &Verify);
  AddCall(pack, options, call, &Pack);
}

}  // namespace nanwatch
