#include "daemon/loop/human_log.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "daemon/correlate/wire_names.h"
#include "daemon/ingest/run_batch.h"
#include "proto/wire/record.h"

namespace nanwatch {
namespace {

constexpr size_t kFileBytesMax = size_t{4} << 20;
constexpr size_t kFilesKept = 4;
constexpr size_t kIdShown = 8;

std::string Short(const std::string& run_id) { return run_id.substr(0, kIdShown); }

std::string Who(const Run& run) {
  std::string text =
      run.program() + ", run " + Short(RunId(run)) + ", pid " + std::to_string(run.pid());
  if (run.world_size() > 1) {
    text += ", rank " + std::to_string(run.rank()) + " of " + std::to_string(run.world_size());
  }
  return text;
}

std::string ClassInWords(const std::string& finding_class) {
  if (finding_class == "produce") return "finite inputs gave a non-finite output";
  if (finding_class == "inf_to_nan") return "Inf became NaN";
  if (finding_class == "scalar") return "a non-finite constant";
  if (finding_class == "propagate") return "an input was bad already";
  if (finding_class == "external") return "came in from outside";
  if (finding_class == "received") return "received by a collective";
  return finding_class;
}

std::string Joined(const google::protobuf::RepeatedPtrField<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string ProgramOf(const Verdict& verdict, const std::string& run_id) {
  for (const RunInfo& run : verdict.runs()) {
    if (run.id() == run_id) return run.program();
  }
  return verdict.run().program();
}

}  // namespace

std::string IncidentSentence(const Verdict& verdict, const Incident& incident) {
  const Finding& origin = incident.origin();
  std::string text = incident.severity() == "info" ? "expected" : "ANOMALY";
  text += " " + ProgramOf(verdict, origin.run()) + ", run " + Short(origin.run()) + ", rank " +
          std::to_string(origin.rank()) + ": ";
  text += origin.step() < 0 ? "step unknown" : "step " + std::to_string(origin.step());
  for (const std::string& part : {origin.phase(), origin.layer(), origin.param(), origin.op()}) {
    if (!part.empty()) text += ", " + part;
  }
  if (!origin.class_().empty()) text += ", " + ClassInWords(origin.class_());
  if (!origin.source().empty()) text += ", " + origin.source();
  if (!incident.expected_by().empty()) text += ", by the rule '" + incident.expected_by() + "'";
  text += incident.reach().empty() ? "; reached nothing" : "; reached " + Joined(incident.reach());
  return text;
}

std::string WarningSentence(const Verdict& verdict, const Warning& warning) {
  return warning.severity() + " " + ProgramOf(verdict, warning.run()) + ", run " +
         Short(warning.run()) + ", rank " + std::to_string(warning.rank()) + ": " +
         warning.evidence() + "; " + warning.cause();
}

struct HumanLog::Impl {
  std::string path;
  bool to_stderr = false;
  std::shared_ptr<spdlog::logger> logger;
};

HumanLog::HumanLog(std::string path, bool to_stderr) : impl_(std::make_unique<Impl>()) {
  impl_->path = std::move(path);
  impl_->to_stderr = to_stderr;
  Reopen();
}

HumanLog::~HumanLog() = default;

void HumanLog::Reopen() {
  std::vector<spdlog::sink_ptr> sinks;
  if (impl_->to_stderr) sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_st>());
  impl_->logger.reset();  // closes the file that it had
  try {
    sinks.push_back(std::make_shared<spdlog::sinks::rotating_file_sink_st>(
        impl_->path, kFileBytesMax, kFilesKept));
  } catch (const spdlog::spdlog_ex&) {
    // The directory is not writable; what can be said is said on stderr and in the database.
  }
  impl_->logger = std::make_shared<spdlog::logger>("nanwatchd", sinks.begin(), sinks.end());
  impl_->logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");
  impl_->logger->flush_on(spdlog::level::info);
  // A full disk: spdlog would print about it on stderr again and again.
  impl_->logger->set_error_handler([](const std::string&) {});
}

void HumanLog::RunStarted(const Run& run) {
  impl_->logger->info("watching {}, torch {}", Who(run), run.torch_version());
}

void HumanLog::RunEnded(const Run& run, const RunState& state) {
  impl_->logger->info("ended {}: {} ops, {} with bad values, {} records lost", Who(run),
                      state.ops_seen(), state.values_bad(),
                      state.records_dropped() + state.holes() + state.records_malformed());
}

void HumanLog::CommandEnded(const JobExit& exit) {
  if (exit.signal) {
    impl_->logger->info("the command of job {} was ended by signal {}", exit.job, *exit.signal);
  } else {
    impl_->logger->info("the command of job {} ended with status {}", exit.job,
                        exit.exit_code.value_or(-1));
  }
}

void HumanLog::IncidentSeen(const Verdict& verdict, const Incident& incident, bool reach_grew) {
  const auto level = incident.severity() == "info" ? spdlog::level::info : spdlog::level::warn;
  const std::string sentence = IncidentSentence(verdict, incident);
  impl_->logger->log(level, "{}{}", reach_grew ? "further: " : "", sentence);
}

// "full, was idle: asked for", "auto: one step in 9 in full, the others canary; expected to cost
// 0.9 % of 1.0 %".
std::string LevelSentence(const LevelFact& level) {
  using Why = wire::LevelRecord::Why;
  const std::string to = LevelName(level.to());
  const std::string change = to + ", was " + LevelName(level.from());
  switch (static_cast<Why>(level.why())) {
    case Why::kAsked:
      return change + ": asked for";
    case Why::kDeadline:
      return change + ": what was asked for has run out";
    case Why::kOnGpu:
      return change + ": a GPU is used, where this is the default";
    case Why::kSuspicion:
      return "auto: in full for a while, because a loss or gradient is bad or far off its own "
             "history";
    case Why::kQuiet:
      return "auto: nothing came of it, back to the budget";
    case Why::kBudget:
      break;
    case Why::kUnknown:
      return change;
  }
  const std::string share =
      level.full_every() == 0   ? "no step in full, as many by the canary as there is room for"
      : level.full_every() == 1 ? "every step in full"
                                : "one step in " + std::to_string(level.full_every()) + " in full";
  if (!level.has_overhead_percent())
    return fmt::format(
        "auto: {}; whether that keeps the budget of {:.2f} % is not known: the times of steps "
        "differ "
        "too much",
        share, level.budget_percent());
  return fmt::format("auto: {}; expected to cost {:.2f} % of {:.2f} %", share,
                     level.overhead_percent(), level.budget_percent());
}

void HumanLog::LevelChanged(const Run& run, uint32_t step, const LevelFact& level) {
  impl_->logger->info("level of {}, step {}: {}", Who(run), step, LevelSentence(level));
}

void HumanLog::WarningSeen(const Verdict& verdict, const Warning& warning) {
  const auto level = warning.severity() == "info" ? spdlog::level::info : spdlog::level::warn;
  impl_->logger->log(level, "{}", WarningSentence(verdict, warning));
}

void HumanLog::FileUnreadable(const std::string& name, const std::string& reason) {
  impl_->logger->warn("left alone: {}: {}", name, reason);
}

void HumanLog::Trouble(const std::string& sentence) { impl_->logger->error("{}", sentence); }
void HumanLog::Remark(const std::string& sentence) { impl_->logger->info("{}", sentence); }

}  // namespace nanwatch
