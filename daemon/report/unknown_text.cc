// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/unknown_text.h"

#include "daemon/correlate/unknown_rule.h"
#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

constexpr char kAskDoctor[] = "`nanwatch doctor --python PY`";

std::string LevelOf(const Verdict& verdict) {
  return verdict.run().level().empty() ? "unknown" : verdict.run().level();
}

UnknownText NoRun() {
  return {"nothing was observed: no process of this job loaded torch, as far as nanwatch can tell",
          "if one should have, run " + Glued(kAskDoctor) +
              " with the job's Python: it says whether torch is missing, or what keeps nanwatch "
              "out (NANWATCH=0, a static or musl Python, env -i, sudo)"};
}

// How many processes were not watched for this reason, and the detail that the first one left ("" for
// none).
struct Unwatched {
  uint64_t count = 0;
  std::string detail;
};

Unwatched UnwatchedBecause(const Verdict& verdict, const std::string& reason) {
  Unwatched unwatched;
  for (const UnwatchedProcess& process : verdict.unwatched()) {
    if (process.reason() != reason) continue;
    if (++unwatched.count == 1) unwatched.detail = Printable(process.detail());
  }
  return unwatched;
}

// "2 processes of the command"; if others of the job were watched, preceded by what those have shown.
std::string WhichProcesses(const Verdict& verdict, const Unwatched& unwatched) {
  const std::string processes =
      (unwatched.count > 1 ? Grouped(unwatched.count) + " processes" : "1 process") +
      " of the command";
  if (verdict.runs().empty()) return processes;
  const bool bad = !verdict.incidents().empty();
  return std::string(bad ? "the non-finite values that were seen did no harm"
                         : "no non-finite value was seen") +
         " in the processes that were watched, but " + processes;
}

UnknownText SwitchedOff(const Verdict& verdict) {
  return {WhichProcesses(verdict, UnwatchedBecause(verdict, "switched_off")) +
              " ran with NANWATCH=0, which switches nanwatch off",
          "unset NANWATCH and run it again"};
}

UnknownText NotPreloaded(const Verdict& verdict) {
  const Unwatched unwatched = UnwatchedBecause(verdict, "not_preloaded");
  return {WhichProcesses(verdict, unwatched) + " ran without nanwatch: " + unwatched.detail,
          "`nanwatch doctor` says whether this installation works"};
}

UnknownText NoRoom(const Verdict& verdict) {
  const Unwatched unwatched = UnwatchedBecause(verdict, "no_room");
  return {WhichProcesses(verdict, unwatched) + (unwatched.count > 1 ? " were" : " was") +
              " not watched: there was no room in shared memory",
          "make room in /dev/shm or set NANWATCH_DIR to a larger tmpfs; `nanwatch doctor` says "
          "how much a job on this host needs"};
}

UnknownText NoObserver(const Verdict& verdict) {
  const Unwatched unwatched = UnwatchedBecause(verdict, "no_observer");
  // "2.3.1: COMMAND", as the process left it.
  const size_t colon = unwatched.detail.find(": ");
  const std::string torch = unwatched.detail.substr(0, colon);
  const std::string command = colon == std::string::npos ? "" : unwatched.detail.substr(colon + 2);
  return {WhichProcesses(verdict, unwatched) + " loaded torch" +
              (torch.empty() ? "" : " " + torch) + ", for which nanwatch has no observer",
          command.empty() ? "run " + Glued(kAskDoctor) + ": it says how to build one"
                          : "build one: `" + command + "`" +
                                (command.find("--python PY ") == std::string::npos
                                     ? ""
                                     : ", where PY is the Python of the job")};
}

UnknownText NotStarted(const Verdict& verdict) {
  const Unwatched unwatched = UnwatchedBecause(verdict, "not_started");
  return {WhichProcesses(verdict, unwatched) + " loaded torch, but nanwatch could not start in " +
              (unwatched.count > 1 ? "them" : "it") +
              (unwatched.detail.empty() ? "" : ": " + unwatched.detail),
          "run " + Glued(kAskDoctor) + " with the Python of the job"};
}

UnknownText NoOps() {
  return {
      "torch was loaded, but no op ran",
      "if the program should have trained, check its own output: it ended before training began"};
}

UnknownText EndedEarly() {
  return {"torch was loaded, but the process ended before nanwatch was ready to watch it",
          "check the program's own output and exit status for why it ended"};
}

UnknownText ImportFailed() {
  return {
      "a process began to import torch, but torch's libraries were never loaded",
      "run `python -c \"import torch\"` with the Python of the job: it shows why the import fails"};
}

UnknownText NothingChecked(const Verdict& verdict) {
  if (CountedSteps(verdict.coverage()) > 0 &&
      IdleSteps(verdict.coverage()) == CountedSteps(verdict.coverage())) {
    return {"all " + Counted(CountedSteps(verdict.coverage()), "step") +
                " ran at level idle, which checks nothing",
            "use `nanwatch run --level full`, or `nanwatch attach` while the job runs"};
  }
  if (!verdict.incidents().empty()) {
    return {"non-finite values were seen, but the process ended before it reported what it checked",
            "check that process's own output and exit status for how it ended"};
  }
  return {"nanwatch was loaded, but no tensor was checked",
          "use `nanwatch run --level full` (the level was " + LevelOf(verdict) +
              "); `nanwatch doctor` says whether this torch is supported"};
}

// What is known of the steps that were watched.
std::string SeenSoFar(const Verdict& verdict) {
  return verdict.incidents().empty() ? "no non-finite value was seen"
                                     : "the non-finite values that were seen did no harm";
}

UnknownText DeviceNotChecked(const Verdict& verdict) {
  return {SeenSoFar(verdict) + ", but of the tensors on a device only " +
              Counted(verdict.coverage().tensors_checked(), "tensor") + " could be checked, and " +
              Grouped(UncheckedOnDevices(verdict.coverage())) + " could not",
          "`nanwatch report --coverage` and the job's own output say why; `nanwatch doctor` says "
          "which devices are supported"};
}

UnknownText RecordsLost(const Verdict& verdict) {
  const uint64_t lost = verdict.coverage().lost_events();
  return {SeenSoFar(verdict) + ", but " + Counted(lost, "record") + (lost == 1 ? " was" : " were") +
              " lost",
          "run it again, with the daemon running from the start"};
}

UnknownText RecordsLeftOut(const Verdict& verdict) {
  const uint64_t count = verdict.coverage().records_thinned();
  return {SeenSoFar(verdict) + ", but " + Counted(count, "record") +
              (count == 1 ? " was" : " were") +
              " left out: there were more than a verdict is made of",
          "mend what made most of the findings, or run it again for fewer steps"};
}

bool RanAtAuto(const Verdict& verdict) {
  return !verdict.runs().empty() &&
         std::all_of(verdict.runs().begin(), verdict.runs().end(),
                     [](const RunInfo& run) { return run.level() == "auto"; });
}

UnknownText StepsNotChecked(const Verdict& verdict) {
  const uint64_t counted = CountedSteps(verdict.coverage());
  const uint64_t watched = counted - IdleSteps(verdict.coverage());
  if (RanAtAuto(verdict)) {
    return {SeenSoFar(verdict) +
                ", but the job ended among steps that level auto had left out, and what they left "
                "was not read",
            "use `nanwatch run --level canary`, which watches every step"};
  }
  if (IdleSteps(verdict.coverage()) <= StepsOffToMeasure(verdict.coverage())) {
    return {SeenSoFar(verdict) +
                ", but the job ended while nanwatch had switched its checks off to measure its "
                "own cost",
            "run it again with `nanwatch run --measure 0`, which never switches them off"};
  }
  return {SeenSoFar(verdict) + " in the " + Grouped(watched) + " of " + Counted(counted, "step") +
              " that were watched; the others ran at level idle, or could not be watched",
          "use `nanwatch run --level canary` or higher from the start"};
}

UnknownText KilledInBadStep() {
  return {
      "a signal killed the job in the middle of a step that had computed a non-finite value; "
      "whether that step would have applied it is unknown",
      "let the job run past this step, or check the op named here"};
}

UnknownText DiedInBadStep() {
  return {
      "an error ended the job in a step that had computed a non-finite value; level sampled did "
      "not see what became of that value",
      "check whether the error comes of it, or run it again with `nanwatch run --level full`"};
}

UnknownText SkipNotExplained() {
  return {
      "a GradScaler skipped an update for a NaN that nobody saw being made: by an op whose result "
      "was read in part, or by code that calls no op; whether its scale was too large or the "
      "forward had made a bad value is unknown",
      "run it again with `nanwatch run --level full`, and look for kernels and numpy that write "
      "into tensors"};
}

UnknownText SkipNotSeen() {
  return {
      "gradients went bad in a job that uses a GradScaler, and what followed was not watched; "
      "whether it skipped the update is unknown",
      "keep the level while a step runs, or look whether the parameters are finite"};
}

UnknownText UpdateNotSeen() {
  return {
      "gradients were not finite in a step in which somebody changed the level; whether the update "
      "was made of them is unknown",
      "keep the level while a step runs, or look whether the parameters are finite"};
}

UnknownText NotFollowed(const Verdict& verdict) {
  if (LevelOf(verdict) == "full") {
    return {
        "the program read a non-finite value and made no update after it; what became of the value "
        "was not seen, because ops inside torch.func are out of sight",
        "check the result of the job: nothing more can be seen of what torch.func runs"};
  }
  return {
      "the program read a non-finite value and made no update after it; what became of the value "
      "was not seen at this level, or inside torch.func",
      "run it again with `nanwatch run --level full`; check the result of the job if it uses "
      "torch.func"};
}

UnknownText RanksNotHeard(const Verdict& verdict) {
  return {SeenSoFar(verdict) + ", but some ranks were not heard of",
          "look on their hosts whether nanwatchd keeps an outbox and `nanwatch forward` runs"};
}

UnknownText RanksBehind(const Verdict& verdict) {
  return {SeenSoFar(verdict) + ", but some ranks fell silent before they ended",
          "look on their hosts whether they still run, and whether `nanwatch forward` does"};
}

UnknownText RunsLeftOut(const Verdict& verdict) {
  return {SeenSoFar(verdict) + ", but the job has more processes than a verdict is made of",
          "give each training a NANWATCH_JOB of its own, and ask for that"};
}

UnknownText FindingsMissing(const Verdict& verdict) {
  return {SeenSoFar(verdict) + ", but findings that its processes have made are not here yet",
          "ask again; where that does not help, look whether `nanwatch forward` runs on its hosts"};
}

UnknownText LaunchByClocks(const Verdict& verdict) {
  return {SeenSoFar(verdict) +
              ", but only the clocks of its hosts tell this launch from others of the same id",
          "give each launch a NANWATCH_JOB of its own"};
}

}  // namespace

UnknownText TextOfUnknown(const Verdict& verdict) {
  const std::string& reason = verdict.unknown_because();
  if (reason == "no_run") return NoRun();
  if (reason == "nothing_checked") return NothingChecked(verdict);
  if (reason == "device_not_checked") return DeviceNotChecked(verdict);
  if (reason == "records_lost") return RecordsLost(verdict);
  if (reason == "records_left_out") return RecordsLeftOut(verdict);
  if (reason == "steps_not_checked") return StepsNotChecked(verdict);
  if (reason == "killed_in_bad_step") return KilledInBadStep();
  if (reason == "died_in_bad_step") return DiedInBadStep();
  if (reason == "skip_not_explained") return SkipNotExplained();
  if (reason == "skip_not_seen") return SkipNotSeen();
  if (reason == "update_not_seen") return UpdateNotSeen();
  if (reason == "not_followed") return NotFollowed(verdict);
  if (reason == "switched_off") return SwitchedOff(verdict);
  if (reason == "not_preloaded") return NotPreloaded(verdict);
  if (reason == "no_room") return NoRoom(verdict);
  if (reason == "no_observer") return NoObserver(verdict);
  if (reason == "not_started") return NotStarted(verdict);
  if (reason == "no_ops") return NoOps();
  if (reason == "ended_early") return EndedEarly();
  if (reason == "import_failed") return ImportFailed();
  if (reason == "ranks_not_heard") return RanksNotHeard(verdict);
  if (reason == "ranks_behind") return RanksBehind(verdict);
  if (reason == "runs_left_out") return RunsLeftOut(verdict);
  if (reason == "findings_missing") return FindingsMissing(verdict);
  if (reason == "launch_by_clocks") return LaunchByClocks(verdict);
  if (reason == "values_not_kept") {
    return {"non-finite values were counted, but their records are gone",
            "run it again under `nanwatch run`, so that a daemon reads the records as they are "
            "written"};
  }
  return {"not enough was watched to say more (" + Printable(reason) + ")",
          "`nanwatch report --coverage` shows what was watched"};
}

}  // namespace nanwatch
