// SPDX-License-Identifier: Apache-2.0
// The verb `serve`: pages and metrics over HTTP, by a process of its own.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/directories.h"
#include "daemon/config/settings.h"
#include "daemon/http/http_client.h"
#include "daemon/http/http_server.h"
#include "daemon/http/listen_address.h"
#include "daemon/http/until_signal.h"
#include "tools/exit_codes.h"
#include "tools/fleet_options.h"
#include "tools/help_layout.h"
#include "tools/serve/answers.h"
#include "tools/serve/fleet_pages.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

constexpr char kServeHelp[] =
    "Paths: / (all runs), /runs/ID (the page of a job, which renews itself), /metrics "
    "(Prometheus),\n"
    "  /api/v1/runs, /api/v1/runs/ID/verdict, /healthz. ID is that of a run or job, or its "
    "beginning.\n"
    "An address that other hosts reach needs --token-file: a file of your own (mode 0600) with at "
    "least\n"
    "  16 characters. Clients send it as 'Authorization: Bearer TOKEN', browsers as a password. "
    "Nothing is\n"
    "  encrypted: put a proxy with TLS in front where others share the network.\n"
    "\n"
    "With --fleet the pages are those of a gatherer's jobs; who reaches them sees what the "
    "gatherer's token\n"
    "  shows, and there are no metrics: the gatherer has its own.\n"
    "\n"
    "Examples:\n"
    "  nanwatch serve\n"
    "  nanwatch serve --listen 0.0.0.0:9464 --token-file ~/.config/nanwatch/token\n"
    "\n"
    "Exit status: 0 when a signal ends it; 1 when nothing can listen there; 2 wrong use.\n"
    "Environment: NANWATCH_SERVE_LISTEN, NANWATCH_SERVE_TOKEN_FILE, NANWATCH_SERVE_HOSTS (like the "
    "flags,\n"
    "  which win; section [serve] of nanwatch.toml has them too); NANWATCH_DIR, "
    "NANWATCH_STATE_DIR.";

struct ServeOptions {
  std::string listen = "127.0.0.1:9464";
  std::string token_file;
  std::vector<std::string> hosts;
  HttpClientOptions fleet;
};

int Serve(const ServeOptions& options) {
  if (AsksFleet(options.fleet) && !MayAskFleet(options.fleet)) return kExitUsage;
  const std::optional<ListenAddress> listen = ParseListen(options.listen);
  if (!listen.has_value()) {
    Say(WrongListen("the address to listen on", options.listen, kServeListenExample));
    return kExitUsage;
  }
  HttpServerOptions server_options = {
      .address = listen->address,
      .port = listen->port,
      .tokens = {},
      .names = options.hosts,
      .other_host_advice = ", or start 'nanwatch serve' with --host NAME"};
  server_options.names.push_back(HostName());
  if (!options.token_file.empty()) {
    const Result<std::string> token = ReadToken(options.token_file);
    if (!token.ok()) {
      Say(token.status().message());
      return kExitFailed;
    }
    server_options.tokens = {{.token = *token}};
  }
  if (!listen->is_loopback && server_options.tokens.empty()) {
    Say("other hosts reach " + listen->address +
        ": give --token-file FILE as well, or listen on 127.0.0.1");
    return kExitUsage;
  }
  const sigset_t ending = BlockEndingSignals();
  std::unique_ptr<Answers> of_this_host;
  const FleetPages of_fleet(options.fleet);
  const bool asks_fleet = AsksFleet(options.fleet);
  if (!asks_fleet) of_this_host = std::make_unique<Answers>();
  const Result<std::unique_ptr<HttpServer>> server =
      HttpServer::Bind(server_options, [&](const HttpRequest& request) {
        return asks_fleet ? of_fleet.Answer(request) : of_this_host->Answer(request);
      });
  if (!server.ok()) {
    Say(server.status().message());
    return kExitFailed;
  }
  Say("serving at " + UrlOf(listen->address, (*server)->port()) + " until Ctrl-C");
  ServeUntilSignal(**server, ending);
  return kExitOk;
}

}  // namespace

void AddServeVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb =
      app.add_subcommand("serve", "Serve pages, metrics and verdicts over HTTP, on this host.");
  SetHelp(*verb, "nanwatch serve [OPTIONS]", kServeHelp);
  auto options = std::make_shared<ServeOptions>();
  verb->add_option("--listen", options->listen, "Where; default 127.0.0.1:9464, port 0: a free one")
      ->type_name("ADDRESS:PORT")
      ->envname(kEnvServeListen);
  verb->add_option("--token-file", options->token_file, "Answer only those who know the token")
      ->type_name("FILE")
      ->envname(kEnvServeTokenFile);
  verb->add_option("--host", options->hosts, "A further host name by which clients call this one")
      ->type_name("NAME")
      ->envname(kEnvServeHosts)
      ->delimiter(',')
      ->allow_extra_args(false);
  AddFleetOptions(*verb, options->fleet, "--fleet-token-file");
  verb->callback([options, &call] { call.chosen = [options] { return Serve(*options); }; });
}

}  // namespace nanwatch
