// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/human_log.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/correlate/wire_names.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/report/incident_words.h"
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

class HumanLog final : public Log {
 public:
  HumanLog(std::string path, bool to_stderr) : path_(std::move(path)), to_stderr_(to_stderr) {
    Open();
  }

  void Reopen() override { Open(); }

  void RunStarted(const Run& run) override {
    Current().info("watching {}, torch {}", Who(run), run.torch_version());
  }

  void RunEnded(const Run& run, const RunState& state) override {
    Current().info("ended {}: {} ops, {} with bad values, {} records lost", Who(run),
                   state.ops_seen(), state.values_bad(),
                   state.records_dropped() + state.holes() + state.records_malformed());
  }

  void CommandEnded(const JobExit& exit) override {
    if (exit.signal) {
      Current().info("the command of job {} was ended by signal {}", exit.job, *exit.signal);
    } else {
      Current().info("the command of job {} ended with status {}", exit.job,
                     exit.exit_code.value_or(-1));
    }
  }

  void IncidentSeen(const Verdict& verdict, const Incident& incident, bool reach_grew) override {
    const auto level = incident.severity() == "info" ? spdlog::level::info : spdlog::level::warn;
    const std::string sentence = IncidentLine(verdict, incident);
    Current().log(level, "{}{}", reach_grew ? "reached further: " : "", sentence);
  }

  void LevelChanged(const Run& run, uint32_t step, const LevelFact& level) override {
    Current().info("level of {}, step {}: {}", Who(run), step, LevelSentence(level));
  }

  void WarningSeen(const Verdict& verdict, const Warning& warning) override {
    const auto level = warning.severity() == "info" ? spdlog::level::info : spdlog::level::warn;
    Current().log(level, "{}", WarningLine(verdict, warning));
  }

  void FileUnreadable(const std::string& name, const std::string& reason) override {
    Current().warn("not read: {}: {}", name, reason);
  }

  void Trouble(const std::string& sentence) override { Current().error("{}", sentence); }
  void Remark(const std::string& sentence) override { Current().info("{}", sentence); }

 private:
  // The logger, of the file that has the name now: its directory may be removed, and made again.
  spdlog::logger& Current() {
    if (IdentityOf(path_) != identity_) Open();
    return *logger_;
  }

  // Device and inode; zeros where there is no regular file of that name.
  static std::pair<uint64_t, uint64_t> IdentityOf(const std::string& path) {
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
    return {info.st_dev, info.st_ino};
  }

  // A name that is a link, or a FIFO, is not opened.
  [[nodiscard]] bool MayOpen() const {
    struct stat info {};
    return lstat(path_.c_str(), &info) != 0 || S_ISREG(info.st_mode);
  }

  void Open() {
    std::vector<spdlog::sink_ptr> sinks;
    if (to_stderr_) sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_st>());
    logger_.reset();  // closes the file that it had
    try {
      if (MayOpen())
        sinks.push_back(std::make_shared<spdlog::sinks::rotating_file_sink_st>(path_, kFileBytesMax,
                                                                               kFilesKept));
    } catch (const spdlog::spdlog_ex&) {
      // The directory is not writable; what can be said is said on stderr and in the database.
    }
    logger_ = std::make_shared<spdlog::logger>("nanwatchd", sinks.begin(), sinks.end());
    logger_->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");
    logger_->flush_on(spdlog::level::info);
    // A full disk: spdlog would print about it on stderr again and again.
    logger_->set_error_handler([](const std::string&) {});
    identity_ = IdentityOf(path_);
  }

  std::string path_;
  bool to_stderr_;
  std::pair<uint64_t, uint64_t> identity_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace

std::unique_ptr<Log> MakeHumanLog(std::string path, bool to_stderr) {
  return std::make_unique<HumanLog>(std::move(path), to_stderr);
}

std::string LevelSentence(const LevelFact& level) {
  using Why = wire::LevelRecord::Why;
  const std::string to = LevelName(level.to());
  const std::string change = to + ", was " + LevelName(level.from());
  switch (static_cast<Why>(level.why())) {
    case Why::kAsked:
      return change + ": requested";
    case Why::kDeadline:
      return change + ": the requested time is over";
    case Why::kOnGpu:
      return change + ": the job uses a GPU, where this is the default";
    case Why::kSuspicion:
      return "auto: every op for a while, because a loss or gradient is non-finite or far outside "
             "its "
             "own history";
    case Why::kQuiet:
      return "auto: no bad value followed, back to the budget";
    case Why::kBudget:
      break;
    case Why::kUnknown:
      return change;
  }
  const std::string share =
      level.full_every() == 0   ? "no step in full, canary steps as the budget allows"
      : level.full_every() == 1 ? "every step in full"
                                : "one step in " + std::to_string(level.full_every()) + " in full";
  if (!level.has_overhead_percent())
    return fmt::format(
        "auto: {}; whether that stays within the budget of {:.2f} % is unknown, because step times "
        "vary too much",
        share, level.budget_percent());
  return fmt::format("auto: {}; expected to cost {:.2f} %, the budget is {:.2f} %", share,
                     level.overhead_percent(), level.budget_percent());
}

}  // namespace nanwatch
