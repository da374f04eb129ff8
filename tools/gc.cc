// SPDX-License-Identifier: Apache-2.0
// The verb `gc`: removes what crashes left behind. What holds findings is read first.
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "daemon/base/clock.h"
#include "proto/wire/naming.h"
#include "proto/wire/text.h"
#include "tools/daemon_start.h"
#include "tools/environment_block.h"
#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/installation.h"
#include "tools/remains.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kGcHelp[] =
    "Segments of ended processes are read into the database by the daemon first, which is started\n"
    "when none runs, and which removes them; one that it does not read stays, unless you say "
    "--unread.\n"
    "Removed here are files that are no segments, unfinished segments, files of tools that were\n"
    "killed, and damaged databases that were moved aside. Files of living processes, of "
    "containers\n"
    "and of other users are left alone.\n"
    "\n"
    "Examples:\n"
    "  nanwatch gc --dry-run               list what would be removed\n"
    "  nanwatch gc\n"
    "\n"
    "Exit status: 0; 1 when something was not read, or could not be removed.\n"
    "Environment: NANWATCH_DIR, NANWATCH_STATE_DIR.";

constexpr useconds_t kWaitUs = 100'000;

struct GcOptions {
  bool dry_run = false;
  bool json = false;
  bool unread = false;
  uint32_t wait_s = 30;
};

// Until the daemon has read what ended processes left, or makes no progress for so long. "", or why
// it cannot be started.
std::string LetDaemonRead(const Places& places, const Clock& clock, uint64_t patience_ns) {
  if (CountUnreadSegments(places, clock) == 0) return "";
  if (!RunningDaemon(places.segment_dir)) {
    const std::string problem =
        StartDaemon(LocateInstallation(), EnvironmentBlock::OfThisProcess(), places.segment_dir);
    if (!problem.empty()) return "the daemon cannot be started: " + problem;
  }
  int unread = CountUnreadSegments(places, clock);
  uint64_t progress_ns = clock.monotonic_ns();
  while (unread > 0 && clock.monotonic_ns() - progress_ns < patience_ns) {
    usleep(kWaitUs);
    const int now_unread = CountUnreadSegments(places, clock);
    if (now_unread < unread) progress_ns = clock.monotonic_ns();
    unread = now_unread;
  }
  return "";
}

std::string AsText(const std::vector<Remain>& remains, const GcOptions& options, int unread) {
  std::string text;
  uint64_t bytes = 0;
  for (const Remain& remain : remains) {
    text += wire::CleanText(remain.path, 4096) + ": " + remain.what + "\n";
    bytes += remain.bytes;
  }
  if (options.dry_run && unread > 0) {
    text += std::to_string(unread) + " segments of ended processes: the daemon reads them first\n";
  }
  const std::string count = std::to_string(remains.size()) +
                            (remains.size() == 1 ? " file, " : " files, ") +
                            std::to_string((bytes + 1023) / 1024) + " KiB";
  return text + (options.dry_run ? "would remove " : "removed ") + count + "\n";
}

std::string AsJson(const std::vector<Remain>& remains, const GcOptions& options, int unread) {
  Json document = {{"schema", "nanwatch.gc/1"},
                   {"dry_run", options.dry_run},
                   {"unread_segments", unread},
                   {"files", Json::array()}};
  for (const Remain& remain : remains) {
    document["files"].push_back(
        {{"path", remain.path}, {"what", remain.what}, {"bytes", remain.bytes}});
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// What to do about the segments that were kept. `could_read`: a daemon was there.
std::string NotRead(int unread, const GcOptions& options, bool could_read,
                    const std::string& directory) {
  const bool is_one = unread == 1;
  const std::string kept =
      std::to_string(unread) +
      (is_one ? " segment of an ended process was" : " segments of ended processes were") +
      " not read, and kept: ";
  if (!could_read) {
    return kept + "mend what keeps the daemon from starting and run this again, or delete " +
           wire::kSegmentPrefix + "*" + wire::kSegmentSuffix + " in " +
           wire::CleanText(directory, 4096) + " with " + (is_one ? "its" : "their") + " findings";
  }
  if (options.unread) {
    return kept + (is_one ? "its process" : "their processes") +
           " may have ended a moment ago; run this again in a minute";
  }
  return kept + "nanwatch.log says why; 'nanwatch gc --unread' removes " +
         (is_one ? "it with its" : "them with their") + " findings";
}

int Gc(const GcOptions& options) {
  const Places places = FindPlaces(ProcessEnvironment());
  if (!places.segment_status.ok() && places.segment_status.kind() != ErrorKind::kNotFound) {
    Say(places.segment_status.message());
    return kExitFailed;
  }
  const SystemClock clock;
  int exit_code = kExitOk;
  // Before the daemon has its time: what ends meanwhile nobody had the time to read.
  const std::vector<FileIdentity> unread_before =
      options.unread ? FindUnreadSegments(places, clock) : std::vector<FileIdentity>();
  const std::string unreadable =
      options.dry_run ? "" : LetDaemonRead(places, clock, options.wait_s * kNsPerSecond);
  if (!unreadable.empty()) {
    Say(unreadable);
    exit_code = kExitFailed;
  }
  // What a daemon was not there to read is kept for the next.
  std::vector<Remain> remains =
      FindRemains(places, clock, unreadable.empty() ? unread_before : std::vector<FileIdentity>());
  if (!options.dry_run) {
    std::erase_if(remains, [&exit_code](const Remain& remain) {
      const std::string problem = RemoveRemain(remain);
      if (problem.empty()) return false;
      Say("cannot remove " + wire::CleanText(remain.path, 4096) + ": " + problem);
      exit_code = kExitFailed;
      return true;
    });
  }
  const int unread = CountUnreadSegments(places, clock);
  if (!options.dry_run && unread > 0) {
    Say(NotRead(unread, options, unreadable.empty(), places.segment_dir));
    exit_code = kExitFailed;
  }
  return PrintAndExit(
      options.json ? AsJson(remains, options, unread) : AsText(remains, options, unread),
      exit_code);
}

}  // namespace

void AddGcVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand("gc", "Remove what crashes have left behind.");
  SetHelp(*verb, "nanwatch gc [OPTIONS]", kGcHelp);
  auto options = std::make_shared<GcOptions>();
  verb->add_flag("--dry-run", options->dry_run, "List it only");
  verb->add_flag("--unread", options->unread,
                 "Also remove segments whose findings nobody has read");
  verb->add_option("--wait", options->wait_s,
                   "How long the daemon may take over a segment (default: 30; 0: do not wait)")
      ->type_name("SECONDS");
  verb->add_flag("--json", options->json, "Print a JSON document (nanwatch.gc/1)");
  verb->callback([options, &call] { call.chosen = [options] { return Gc(*options); }; });
}

}  // namespace nanwatch
