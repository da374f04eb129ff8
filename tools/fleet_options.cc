// SPDX-License-Identifier: Apache-2.0
#include "tools/fleet_options.h"

#include <string>

#include "daemon/base/directories.h"
#include "daemon/config/settings.h"
#include "tools/terminal.h"

namespace nanwatch {
namespace {

constexpr ClientVariables kFleetVariables = {.url = kEnvFleet,
                                             .token_file = kEnvFleetTokenFile,
                                             .ca = kEnvFleetCa,
                                             .cert = kEnvFleetCert,
                                             .key = kEnvFleetKey};

std::string WithoutSlash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

}  // namespace

void AddClientOptions(CLI::App& verb, HttpClientOptions& client, const ClientVariables& variables,
                      const char* token_flag) {
  verb.add_option(token_flag, client.token_file, "The token that the gatherer asks for")
      ->type_name("FILE")
      ->envname(variables.token_file);
  verb.add_option("--ca", client.ca_file, "Trust these authorities, not those of the system")
      ->type_name("FILE")
      ->envname(variables.ca);
  verb.add_option("--cert", client.certificate_file, "A client certificate for it, PEM")
      ->type_name("FILE")
      ->envname(variables.cert);
  verb.add_option("--key", client.key_file, "The certificate's key, PEM")
      ->type_name("FILE")
      ->envname(variables.key);
}

bool IsTokenOfAnother(const HttpClientOptions& client, const ClientVariables& variables) {
  const Environment environment = ProcessEnvironment();
  const std::string configured = environment(variables.url);
  return !client.token_file.empty() && client.token_file == environment(variables.token_file) &&
         !configured.empty() && WithoutSlash(configured) != WithoutSlash(client.url);
}

void AddFleetOptions(CLI::App& verb, HttpClientOptions& client, const char* token_flag) {
  verb.add_option("--fleet", client.url,
                  "Ask a gatherer (nanwatch-gather) instead of this host; 'none': this host")
      ->type_name("URL")
      ->envname(kEnvFleet);
  AddClientOptions(verb, client, kFleetVariables, token_flag);
}

bool AsksFleet(const HttpClientOptions& client) {
  return !client.url.empty() && client.url != kNoFleet;
}

bool MayAskFleet(const HttpClientOptions& client) {
  if (IsTokenOfAnother(client, kFleetVariables)) {
    Say("the token in " + client.token_file + " is for " + ProcessEnvironment()(kEnvFleet) +
        ": name the one for " + client.url + ", too");
    return false;
  }
  if (!client.token_file.empty() && IsPlainToOthers(client.url)) Say(kTokenIsPlain);
  return true;
}

}  // namespace nanwatch
