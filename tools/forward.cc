// SPDX-License-Identifier: Apache-2.0
// The verb `forward`: sends what this host's daemon keeps for a fleet.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include <ctime>
#include <memory>
#include <random>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/base/directories.h"
#include "daemon/base/unique_fd.h"
#include "daemon/config/settings.h"
#include "daemon/fleet/otlp_logs.h"
#include "daemon/http/gzip.h"
#include "daemon/http/http_client.h"
#include "tools/exit_codes.h"
#include "tools/fleet_options.h"
#include "tools/forwarder.h"
#include "tools/help_layout.h"
#include "tools/output_file.h"
#include "tools/places.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

constexpr char kForwardHelp[] =
    "Sends what the daemon keeps in its outbox to a gatherer (nanwatch-gather), as OTLP logs over "
    "HTTP.\n"
    "  Nothing is removed before the gatherer has acknowledged it. With --collector an "
    "OpenTelemetry Collector\n"
    "  may acknowledge instead, which has then only queued it.\n"
    "  What was acknowledged is kept for two days, while there is room. It is sent again where the "
    "gatherer's\n"
    "  database turns out to lack it, as after a backup was restored.\n"
    "The daemon keeps an outbox when NANWATCH_OUTBOX=1, or 'outbox = true' in nanwatch.toml.\n"
    "A token file is your own (mode 0600). Proxies are those of https_proxy and no_proxy.\n"
    "\n"
    "Examples:\n"
    "  nanwatch forward --to https://gather.example.org --token-file ~/.config/nanwatch/token\n"
    "  nanwatch forward --to http://127.0.0.1:4318 --once\n"
    "\n"
    "Exit status: 0 when a signal ends it, or --once has sent all; 1 when rows are left or were "
    "rejected;\n"
    "  2 wrong use.\n"
    "Environment: NANWATCH_DIR, NANWATCH_STATE_DIR.";

struct ForwardOptions {
  HttpClientOptions client;
  bool to_a_collector = false;
  bool once = false;
  std::string metrics_file;
};

// Another one would send the same rows.
UniqueFd LockOutbox(const std::string& state_dir) {
  UniqueFd fd(open((state_dir + "/forward.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd.Close();
  return fd;
}

// Whether a signal of `ending` came while it waited.
bool WaitForSignal(const sigset_t& ending, uint64_t wait_ns) {
  const timespec wait = {.tv_sec = static_cast<time_t>(wait_ns / kNsPerSecond),
                         .tv_nsec = static_cast<long>(wait_ns % kNsPerSecond)};
  return sigtimedwait(&ending, nullptr, &wait) > 0;
}

sigset_t EndingSignals() {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ending, signal);
  return ending;
}

// One of them waits to be taken.
bool IsToEnd() {
  sigset_t pending;
  const bool known = sigpending(&pending) == 0;
  return known && (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
                   sigismember(&pending, SIGHUP) == 1);
}

int Finish(const Forwarder& forwarder) {
  if (forwarder.rejected() == 0) return kExitOk;
  Say(std::to_string(forwarder.rejected()) + " rows were rejected for good, " +
      std::to_string(forwarder.acknowledged()) + " were taken");
  return kExitFailed;
}

// Written as a whole now and then, for node_exporter, which reads files.
class MetricsFile {
 public:
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}

  void Write(Forwarder& forwarder, bool is_last) {
    const uint64_t now_ns = SystemClock().monotonic_ns();
    if (path_.empty() || (!is_last && written_ns_ != 0 && now_ns - written_ns_ < kWriteEveryNs))
      return;
    written_ns_ = now_ns;
    const Status written = WriteOutputFile(path_, forwarder.Metrics());
    if (!written.ok() && trouble_.ok()) Say(written.message());
    trouble_ = written;
  }

 private:
  static constexpr uint64_t kWriteEveryNs = 10 * kNsPerSecond;

  std::string path_;
  uint64_t written_ns_ = 0;
  Status trouble_;
};

int ForwardUntilSignal(Forwarder& forwarder, bool once, MetricsFile metrics) {
  const sigset_t ending = EndingSignals();
  while (true) {
    const uint64_t wait_ns = forwarder.Step();
    metrics.Write(forwarder, once && (forwarder.is_done() || !forwarder.trouble().ok()));
    if (once && forwarder.is_done()) return Finish(forwarder);
    if (once && !forwarder.trouble().ok()) return kExitFailed;
    if (WaitForSignal(ending, wait_ns)) return once ? kExitFailed : kExitOk;
  }
}

constexpr ClientVariables kForwardVariables = {.url = kEnvForwardTo,
                                               .token_file = kEnvForwardTokenFile,
                                               .ca = kEnvForwardCa,
                                               .cert = kEnvForwardCert,
                                               .key = kEnvForwardKey};

int Forward(const ForwardOptions& options) {
  if (IsTokenOfAnother(options.client, kForwardVariables)) {
    Say("the token in " + options.client.token_file + " is for " +
        ProcessEnvironment()(kEnvForwardTo) + ": set " + kEnvForwardTo + "=" + options.client.url +
        " and " + kEnvForwardTokenFile + " instead of --to");
    return kExitUsage;
  }
  const Places places = FindPlaces(ProcessEnvironment());
  if (!places.state_status.ok()) {
    Say(places.state_status.message());
    return kExitFailed;
  }
  const sigset_t ending = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  HttpClientOptions client_options = options.client;
  client_options.is_cancelled = IsToEnd;
  const Result<std::unique_ptr<HttpClient>> client = HttpClient::Make(client_options);
  if (!client.ok()) {
    Say(client.status().message());
    return client.status().kind() == ErrorKind::kInvalid ? kExitUsage : kExitFailed;
  }
  if (!client_options.token_file.empty() && IsPlainToOthers(client_options.url)) Say(kTokenIsPlain);
  if (Status made = EnsureStateDirectory(places.state_dir); !made.ok()) {
    Say(made.message());
    return kExitFailed;
  }
  const UniqueFd lock = LockOutbox(places.state_dir);
  if (!lock.valid()) {
    Say("another 'nanwatch forward' sends what is in " + places.state_dir);
    return kExitFailed;
  }
  const SystemClock clock;
  Forwarder forwarder(
      {.state_dir = places.state_dir,
       .host = HostName(),
       .to_a_collector = options.to_a_collector,
       .seed = std::random_device()()},
      [&](const std::string& request, const HttpHeaders& headers) {
        return (*client)->Post("/v1/logs", kOtlpType, Gzip(request), headers);
      },
      clock,
      [](const std::string& sentence) {
        // What was cut off by our own end is no trouble.
        if (!IsToEnd()) Say(sentence);
      });
  return ForwardUntilSignal(forwarder, options.once, MetricsFile(options.metrics_file));
}

}  // namespace

void AddForwardVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand("forward", "Send this host's runs and findings to a fleet.");
  SetHelp(*verb, "nanwatch forward --to URL [OPTIONS]", kForwardHelp);
  auto options = std::make_shared<ForwardOptions>();
  HttpClientOptions& client = options->client;
  verb->add_option("--to", client.url, "The gatherer")
      ->required()
      ->type_name("URL")
      ->envname(kEnvForwardTo);
  AddClientOptions(*verb, client, kForwardVariables);
  verb->add_flag("--collector", options->to_a_collector,
                 "It is an OpenTelemetry Collector, whose word is enough")
      ->envname(kEnvForwardCollector);
  verb->add_option("--metrics", options->metrics_file,
                   "Write metrics there every ten seconds, for node_exporter's textfile collector")
      ->type_name("FILE")
      ->envname(kEnvForwardMetrics);
  verb->add_flag("--once", options->once, "Send what waits, and end");
  verb->callback([options, &call] { call.chosen = [options] { return Forward(*options); }; });
}

}  // namespace nanwatch
