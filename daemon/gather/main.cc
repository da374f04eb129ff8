// SPDX-License-Identifier: Apache-2.0
// nanwatch-gather: parses its command line and wires the parts. README.md says how to run it.
#include <google/protobuf/stubs/logging.h>
#include <malloc.h>
#include <signal.h>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/command_line.h"
#include "daemon/fleet/held_row.h"
#include "daemon/fleet/otlp_logs.h"
#include "daemon/gather/alert_book.h"
#include "daemon/gather/alerts.h"
#include "daemon/gather/fleet_answers.h"
#include "daemon/gather/fleet_reader.h"
#include "daemon/gather/gather_answers.h"
#include "daemon/gather/postgres.h"
#include "daemon/gather/postgres_address.h"
#include "daemon/gather/row_queue.h"
#include "daemon/gather/tenants.h"
#include "daemon/http/http_client.h"
#include "daemon/http/http_server.h"
#include "daemon/http/listen_address.h"
#include "daemon/http/until_signal.h"

namespace nanwatch {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUse = 2;
constexpr size_t kBodyBytesMax = size_t{16} << 20;
constexpr size_t kBodiesBytesMax = size_t{128} << 20;
// A connection takes a thread while it is open, and senders keep theirs.
constexpr size_t kConnectionsMax = 1024;

constexpr int kQuestionsAtOnce = 2;
constexpr std::chrono::seconds kEndsWithin{5};

struct CommandLine {
  std::string database;
  std::string read_database;
  std::string listen = "127.0.0.1:4318";
  std::string token_file;
  std::string tenants_file;
  HttpClientOptions manager = {.url = ""};
  std::string pages;
  int hold_s = 300;
  int pool = 4;
  int keep_days = 30;
};

int Refuse(const std::string& why, int status) {
  std::fprintf(stderr, "nanwatch-gather: %s\n", why.c_str());
  return status;
}

void Say(const std::string& sentence) {
  std::fprintf(stderr, "%s nanwatch-gather: %s\n", FormatUtc(SystemClock().real_ns()).c_str(),
               sentence.c_str());
}

// Empty where nothing is to be read.
Result<std::vector<std::unique_ptr<FleetReader>>> MakeReaders(const std::string& connection) {
  std::vector<std::unique_ptr<FleetReader>> readers;
  if (connection.empty()) return readers;
  const Result<std::string> database = WithTimeouts(connection);
  if (!database.ok()) return database.status();
  for (int i = 0; i < kQuestionsAtOnce; ++i) readers.push_back(MakeFleetReader(*database));
  return readers;
}

// An answer about thousands of ranks is made of millions of small objects and thrown away. By
// default glibc joins free memory and gives it back in between, which takes a third of the time
// (seeded_jobs, 40 jobs: 0.72 instead of 1.11 s for the largest).
void KeepFreeMemory() {
  mallopt(M_MXFAST, 0);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
}

// Neither a database that does not answer nor a slow sender holds up who ends us: what is not
// committed was not acknowledged, and is sent again.
void EndSoon() {
  std::thread([] {
    std::this_thread::sleep_for(kEndsWithin);
    Say("what waits is not waited for: its senders keep it");
    std::_Exit(0);
  }).detach();
}

int Serve(const CommandLine& asked) {
  const std::optional<ListenAddress> listen = ParseListen(asked.listen);
  if (!listen.has_value())
    return Refuse(WrongListen("--listen", asked.listen, "0.0.0.0:4318"), kWrongUse);
  HttpServerOptions options = {
      .address = listen->address,
      .port = listen->port,
      .tokens = {},
      .names = {},
      .body_bytes_max = kBodyBytesMax,
      .bodies_bytes_max = kBodiesBytesMax,
      .connections_max = kConnectionsMax,
      .other_host_advice = ", or give nanwatch-gather a --token-file: then any name will do",
      .headers = {{kGathererHeader, kGathererVersion}},
      .headers_taken = {kHeldRowHeader}};
  if (!asked.token_file.empty()) {
    const Result<std::string> token = ReadToken(asked.token_file);
    if (!token.ok()) return Refuse(token.status().message(), kFailed);
    options.tokens = {{.token = *token}};
  }
  if (!asked.tenants_file.empty()) {
    Result<std::vector<HttpToken>> tenants = ReadTenants(asked.tenants_file);
    if (!tenants.ok()) return Refuse(tenants.status().message(), kFailed);
    options.tokens = *std::move(tenants);
  }
  options.any_host = !options.tokens.empty();
  if (!listen->is_loopback && options.tokens.empty())
    return Refuse("other hosts reach " + listen->address +
                      ": give --token-file FILE as well, or listen on 127.0.0.1",
                  kWrongUse);
  KeepFreeMemory();
  // What strangers send is counted, not logged.
  google::protobuf::SetLogHandler(nullptr);
  const Result<std::string> database = WithTimeouts(asked.database);
  if (!database.ok()) return Refuse(database.status().message(), kWrongUse);
  Result<std::vector<std::unique_ptr<FleetReader>>> readers = MakeReaders(asked.read_database);
  if (!readers.ok()) return Refuse(readers.status().message(), kWrongUse);
  const sigset_t ending = BlockEndingSignals();
  RowQueue queue(asked.pool, [&] { return MakeFleetWriter(*database); }, {});
  const SystemClock clock;
  FleetAnswers fleet(*std::move(readers), clock);
  GatherAnswers answers(queue, fleet, Say);
  options.on_failure = [&answers](int status) { answers.OnFailure(status); };
  const Result<std::unique_ptr<HttpServer>> server = HttpServer::Bind(
      options, [&answers](const HttpRequest& request) { return answers.Answer(request); });
  if (!server.ok()) return Refuse(server.status().message(), kFailed);
  Say("listening at " + UrlOf(listen->address, (*server)->port()));
  ServeUntilSignal(**server, ending, [&queue] {
    queue.Stop();
    EndSoon();
  });
  return 0;
}

int Maintain(const CommandLine& asked) {
  constexpr uint64_t kDayNs = uint64_t{86'400} * kNsPerSecond;
  const auto today = static_cast<int64_t>(SystemClock().real_ns() / kDayNs);
  const Result<std::string> database = WithTimeouts(asked.database);
  if (!database.ok()) return Refuse(database.status().message(), kWrongUse);
  const Result<FleetMaintenance> done = MaintainFleet(*database, today, asked.keep_days);
  if (!done.ok()) return Refuse(done.status().message(), kFailed);
  std::printf("schema was %d; %d days made, %d dropped\n", done->version_before, done->days_made,
              done->days_dropped);
  if (done->days_kept > 0)
    std::printf(
        "%d older days have rows that stay: findings of runs that go on, or what came lately\n",
        done->days_kept);
  return 0;
}

int Alert(const CommandLine& asked) {
  const Result<std::string> database = WithTimeouts(asked.database);
  if (!database.ok()) return Refuse(database.status().message(), kWrongUse);
  const Result<std::unique_ptr<HttpClient>> client = HttpClient::Make(asked.manager);
  if (!client.ok()) return Refuse(client.status().message(), kWrongUse);
  const sigset_t ending = BlockEndingSignals();
  const std::unique_ptr<AlertBook> book = MakeAlertBook(*database);
  const std::unique_ptr<FleetReader> reader = MakeFleetReader(*database);
  const SystemClock clock;
  Alerts alerts(
      *book, *reader,
      [&](const std::string& body) {
        return (*client)->PostPlain("/api/v2/alerts", "application/json", body);
      },
      clock, {.pages = asked.pages, .least_ns = static_cast<uint64_t>(asked.hold_s) * kNsPerSecond},
      Say);
  Say("tells " + asked.manager.url);
  constexpr timespec kLook = {.tv_sec = kAlertLookNs / kNsPerSecond, .tv_nsec = 0};
  do {
    alerts.Step();
  } while (sigtimedwait(&ending, nullptr, &kLook) <= 0);
  return 0;
}

void AddAlertVerb(CLI::App& app, CommandLine& asked) {
  CLI::App* alert = app.add_subcommand(
      "alert", "Tell Prometheus' Alertmanager of each launch's first anomaly, and of its end");
  alert
      ->add_option("--database", asked.database,
                   "by a role that is in nanwatch_read and nanwatch_alert")
      ->required()
      ->type_name("CONNECTION");
  alert
      ->add_option("--alertmanager", asked.manager.url,
                   "http://HOST:9093, or with a path before /api")
      ->required()
      ->type_name("URL");
  alert->add_option("--token-file", asked.manager.token_file, "The token that it asks for")
      ->type_name("FILE");
  alert->add_option("--ca", asked.manager.ca_file, "Trust these authorities, not the system's")
      ->type_name("FILE");
  alert
      ->add_option("--hold", asked.hold_s,
                   "seconds that an alert fires at least, longer than group_wait; default 300")
      ->check(CLI::Range(1, 86'400));
  alert
      ->add_option("--pages", asked.pages,
                   "where 'nanwatch serve --fleet' is reached, for links in alerts")
      ->type_name("URL");
}

int Main(int argc, char** argv) {
  CommandLine asked;
  CLI::App app{
      "nanwatch-gather: takes what nanwatch forwards from many hosts, and keeps it in PostgreSQL.\n"
      "CONNECTION is one of libpq's: 'host=db dbname=nanwatch user=gather' or a URI; give a "
      "password by PGPASSFILE."};
  app.set_version_flag("--version", "nanwatch-gather " NANWATCH_VERSION);
  app.require_subcommand(1);
  CLI::App* serve = app.add_subcommand("serve", "Take OTLP logs over HTTP until a signal ends it");
  serve->add_option("--database", asked.database, "by a role that is in nanwatch_ingest")
      ->required()
      ->type_name("CONNECTION");
  serve
      ->add_option("--read-database", asked.read_database,
                   "by a role that is in nanwatch_read; without it no job is shown")
      ->type_name("CONNECTION");
  serve->add_option("--listen", asked.listen, "default 127.0.0.1:4318; port 0: a free one")
      ->type_name("ADDRESS:PORT");
  serve->add_option("--token-file", asked.token_file, "take rows from those who know the token")
      ->type_name("FILE");
  serve
      ->add_option("--tenants", asked.tenants_file,
                   "a line a tenant, its name and its token: each sees what came with its tokens")
      ->type_name("FILE")
      ->excludes("--token-file");
  serve->add_option("--pool", asked.pool, "connections to the database; default 4")
      ->check(CLI::Range(1, 64));
  CLI::App* maintain = app.add_subcommand(
      "maintain", "Bring the schema up to date, make the days to come, drop old ones; once a day");
  maintain->add_option("--database", asked.database, "by the owner of the schema")
      ->required()
      ->type_name("CONNECTION");
  maintain->add_option("--keep-days", asked.keep_days, "default 30")->check(CLI::Range(1, 3650));
  AddAlertVerb(app, asked);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Refuse(PlainComplaint(error.what()) + "; see 'nanwatch-gather --help'", kWrongUse);
  }
  if (serve->parsed()) return Serve(asked);
  return maintain->parsed() ? Maintain(asked) : Alert(asked);
}

}  // namespace
}  // namespace nanwatch

int main(int argc, char** argv) {
  try {
    return nanwatch::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nanwatch-gather: %s\n", error.what());
    return nanwatch::kFailed;
  }
}
