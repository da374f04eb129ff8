// SPDX-License-Identifier: Apache-2.0
// The verb `serve`: pages and metrics over HTTP, by a process of its own.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/directories.h"
#include "daemon/base/unique_fd.h"
#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/serve/answers.h"
#include "tools/serve/http_server.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

constexpr size_t kTokenMin = 16;
constexpr size_t kTokenMax = 4096;

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
};

struct ListenAddress {
  std::string address;
  int port = 0;
  bool is_loopback = false;
};

std::optional<ListenAddress> ParseListen(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  ListenAddress listen;
  listen.address = text.substr(0, colon);
  if (listen.address.starts_with('[') && listen.address.ends_with(']'))
    listen.address = listen.address.substr(1, listen.address.size() - 2);
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, listen.port);
  if (error != std::errc() || rest != end || listen.port < 0 || listen.port > 65535)
    return std::nullopt;
  if (listen.address == "localhost") listen.address = "127.0.0.1";
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET, listen.address.c_str(), &four) == 1) {
    listen.is_loopback = (ntohl(four.s_addr) >> 24) == 127;
  } else if (inet_pton(AF_INET6, listen.address.c_str(), &six) == 1) {
    listen.is_loopback = IN6_IS_ADDR_LOOPBACK(&six);
  } else {
    return std::nullopt;
  }
  return listen;
}

Result<std::string> ReadToken(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd.valid() || fstat(fd.get(), &status) != 0)
    return Status::FromErrno(errno, "the token file '" + path + "' cannot be read");
  if (!S_ISREG(status.st_mode) || (status.st_mode & 077) != 0) {
    return Status(ErrorKind::kPermission,
                  "others may read the token file: run 'chmod 600 " + path + "'");
  }
  std::string token(kTokenMax + 1, '\0');
  const ssize_t got = read(fd.get(), token.data(), token.size());
  token.resize(got < 0 ? 0 : static_cast<size_t>(got));
  while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
  const bool is_plain =
      token.find_first_not_of(
          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=") ==
      std::string::npos;
  if (token.size() < kTokenMin || token.size() > kTokenMax || !is_plain) {
    return Status(ErrorKind::kInvalid,
                  "the token in '" + path +
                      "' must be one word of at least 16 letters and digits, for example that of "
                      "'openssl rand -hex 16'");
  }
  return token;
}

std::string UrlOf(const std::string& address, int port) {
  const bool is_six = address.find(':') != std::string::npos;
  return "http://" + (is_six ? "[" + address + "]" : address) + ":" + std::to_string(port) + "/";
}

// Blocks what ends it, in this thread and those that it starts from now on.
sigset_t BlockEndingSignals() {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&ending, signal);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  return ending;
}

// Serves until one of these arrives.
void ServeUntilSignal(HttpServer& server, const sigset_t& ending) {
  std::thread waiter([&] {
    int signal = 0;
    sigwait(&ending, &signal);
    server.Stop();
  });
  server.Serve();
  pthread_kill(waiter.native_handle(), SIGUSR1);  // where it ended by itself
  waiter.join();
}

int Serve(const ServeOptions& options) {
  const std::optional<ListenAddress> listen = ParseListen(options.listen);
  if (!listen.has_value()) {
    Say("the address to listen on is '" + options.listen +
        "': give an address and a port, for example 127.0.0.1:9464 or [::1]:9464");
    return kExitUsage;
  }
  HttpServerOptions server_options = {
      .address = listen->address, .port = listen->port, .token = "", .names = options.hosts};
  server_options.names.push_back(HostName());
  if (!options.token_file.empty()) {
    const Result<std::string> token = ReadToken(options.token_file);
    if (!token.ok()) {
      Say(token.status().message());
      return kExitFailed;
    }
    server_options.token = *token;
  }
  if (!listen->is_loopback && server_options.token.empty()) {
    Say("other hosts reach " + listen->address +
        ": give --token-file FILE as well, or listen on 127.0.0.1");
    return kExitUsage;
  }
  const sigset_t ending = BlockEndingSignals();
  Answers answers;
  const Result<std::unique_ptr<HttpServer>> server = HttpServer::Bind(
      server_options, [&answers](const HttpRequest& request) { return answers.Answer(request); });
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
  verb->callback([options, &call] { call.chosen = [options] { return Serve(*options); }; });
}

}  // namespace nanwatch
