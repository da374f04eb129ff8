// SPDX-License-Identifier: Apache-2.0
#include "tools/fleet_options.h"

#include <string>

#include "daemon/base/directories.h"
#include "daemon/config/settings.h"
#include "tools/terminal.h"

namespace nanwatch {
namespace {

std::string WithoutSlash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

}  // namespace

void AddFleetOptions(CLI::App& verb, HttpClientOptions& client, const char* token_flag) {
  verb.add_option("--fleet", client.url,
                  "Ask a gatherer (nanwatch-gather) instead of this host; 'none': this host")
      ->type_name("URL")
      ->envname(kEnvFleet);
  verb.add_option(token_flag, client.token_file, "The token that the gatherer asks for")
      ->type_name("FILE")
      ->envname(kEnvFleetTokenFile);
  verb.add_option("--ca", client.ca_file, "Trust these authorities, not those of the system")
      ->type_name("FILE")
      ->envname(kEnvFleetCa);
  verb.add_option("--cert", client.certificate_file, "A client certificate for it, PEM")
      ->type_name("FILE")
      ->envname(kEnvFleetCert);
  verb.add_option("--key", client.key_file, "The certificate's key, PEM")
      ->type_name("FILE")
      ->envname(kEnvFleetKey);
}

bool AsksFleet(const HttpClientOptions& client) {
  return !client.url.empty() && client.url != kNoFleet;
}

bool MayAskFleet(const HttpClientOptions& client) {
  const Environment environment = ProcessEnvironment();
  const std::string configured = environment(kEnvFleet);
  const bool is_token_of_another =
      !client.token_file.empty() && client.token_file == environment(kEnvFleetTokenFile) &&
      !configured.empty() && WithoutSlash(configured) != WithoutSlash(client.url);
  if (is_token_of_another) {
    Say("the token in " + client.token_file + " is for " + configured + ": name the one for " +
        client.url + ", too");
    return false;
  }
  if (!client.token_file.empty() && IsPlainToOthers(client.url)) Say(kTokenIsPlain);
  return true;
}

}  // namespace nanwatch
