// SPDX-License-Identifier: Apache-2.0
// The verb `fleet`: asks a gatherer about more than one job.
#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/http/http_client.h"
#include "daemon/report/cell_text.h"
#include "tools/exit_codes.h"
#include "tools/fleet_options.h"
#include "tools/fleet_question.h"
#include "tools/help_layout.h"
#include "tools/table.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

constexpr char kFleetHelp[] =
    "Asks a gatherer (nanwatch-gather) about all jobs of a fleet.\n"
    "  hosts  lists hosts on which several launches went wrong first: a GPU or memory may be "
    "broken "
    "there\n"
    "For one job: 'nanwatch report JOB --fleet URL'.\n"
    "\n"
    "Examples:\n"
    "  nanwatch fleet hosts --fleet https://gather.example.org --token-file TOKEN\n"
    "\n"
    "Exit status: 0; 1 when the gatherer does not answer; 2 wrong use.";

struct FleetOptions {
  HttpClientOptions client;
  bool json = false;
};

// A text or a number; "" where there is none.
std::string Cell(const nlohmann::json& host, const char* name) {
  if (!host.is_object() || !host.contains(name)) return "";
  const nlohmann::json& value = host[name];
  return Printable(value.is_string() ? value.get<std::string>() : value.dump());
}

std::string Table(const nlohmann::json& hosts) {
  std::vector<std::vector<std::string>> rows;
  for (const nlohmann::json& host : hosts) {
    rows.push_back({Cell(host, "host"), Cell(host, "launches"), Cell(host, "incidents"),
                    Cell(host, "op"), Cell(host, "layer")});
  }
  return FormatTable({{"HOST"}, {"LAUNCHES", true}, {"INCIDENTS", true}, {"OP"}, {"LAYER"}}, rows);
}

int ShowHosts(const FleetOptions& options) {
  if (!AsksFleet(options.client)) {
    Say("name the gatherer: --fleet URL, or 'url' in section [fleet] of nanwatch.toml");
    return kExitUsage;
  }
  if (!MayAskFleet(options.client)) return kExitUsage;
  const Result<std::string> body = AskFleetHosts(options.client);
  if (!body.ok()) {
    Say(body.status().message());
    return kExitFailed;
  }
  if (options.json) return PrintAndExit(*body, kExitOk);
  const nlohmann::json document = nlohmann::json::parse(*body, nullptr, false);
  if (!document.is_object() || !document.contains("hosts") || !document["hosts"].is_array()) {
    Say("what the gatherer answered makes no sense to this version");
    return kExitFailed;
  }
  if (document.contains("older_incidents_left_out") && document["older_incidents_left_out"] == true)
    Say("only the newest incidents were counted");
  if (document["hosts"].empty()) {
    Say("no host stands out: none was the first in two launches");
    return kExitOk;
  }
  return PrintAndExit(Table(document["hosts"]), kExitOk);
}

}  // namespace

void AddFleetVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand("fleet", "Ask a gatherer about all jobs of a fleet.");
  SetHelp(*verb, "nanwatch fleet hosts --fleet URL [OPTIONS]", kFleetHelp);
  verb->require_subcommand(1);
  CLI::App* hosts = verb->add_subcommand("hosts", "Hosts on which several launches began to fail.");
  SetHelp(*hosts, "nanwatch fleet hosts --fleet URL [OPTIONS]", kFleetHelp);
  auto options = std::make_shared<FleetOptions>();
  AddFleetOptions(*hosts, options->client);
  hosts->add_flag("--json", options->json, "Print the document (nanwatch.fleet_hosts/1)");
  hosts->callback([options, &call] { call.chosen = [options] { return ShowHosts(*options); }; });
}

}  // namespace nanwatch
