// SPDX-License-Identifier: Apache-2.0
// The options by which a verb asks a gatherer instead of this host: --fleet and what belongs to it,
// NANWATCH_FLEET and its like, section [fleet] of nanwatch.toml.
#pragma once

#include <CLI/App.hpp>

#include "daemon/http/http_client.h"

namespace nanwatch {

// The variables behind what a verb is told of an HTTP server that it asks or sends to.
struct ClientVariables {
  const char* url;
  const char* token_file;
  const char* ca;
  const char* cert;
  const char* key;
};
// All but the address, whose flag is the verb's own.
void AddClientOptions(CLI::App& verb, HttpClientOptions& client, const ClientVariables& variables,
                      const char* token_flag = "--token-file");

// A token is for one address: that of the configuration, or of the environment, stays with it.
[[nodiscard]] bool IsTokenOfAnother(const HttpClientOptions& client,
                                    const ClientVariables& variables);

// `token_flag`: "--token-file", where the verb has no other of that name.
void AddFleetOptions(CLI::App& verb, HttpClientOptions& client,
                     const char* token_flag = "--token-file");

// Whether a gatherer is asked: there is an address, and it is not "none".
[[nodiscard]] bool AsksFleet(const HttpClientOptions& client);

// Before the first question. False: the token belongs to another address, which was said. Says it
// too where the token is sent in the clear.
[[nodiscard]] bool MayAskFleet(const HttpClientOptions& client);

}  // namespace nanwatch
