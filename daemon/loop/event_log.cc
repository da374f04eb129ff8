// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/event_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/base/unique_fd.h"
#include "daemon/correlate/wire_names.h"
#include "daemon/ingest/run_batch.h"
#include "daemon/loop/human_log.h"
#include "daemon/report/json_report.h"
#include "proto/wire/text.h"

namespace nanwatch {
namespace {

constexpr size_t kRuleBytesMax = 256;

using Json = nlohmann::ordered_json;

std::string Line(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json Event(const Clock& clock, const char* event) {
  return Json{{"time", FormatUtc(clock.real_ns())}, {"event", event}};
}

void AddRun(Json& json, const Run& run) {
  json["run"] = RunId(run);
  json["job"] = JobOf(run);
  json["program"] = run.program();
  json["rank"] = run.rank();
  json["pid"] = run.pid();
}

const RunInfo* RunWithId(const Verdict& verdict, const std::string& id) {
  for (const RunInfo& run : verdict.runs()) {
    if (run.id() == id) return &run;
  }
  return verdict.has_run() ? &verdict.run() : nullptr;
}

void AddRunInfo(Json& json, const RunInfo* run) {
  if (run == nullptr) return;
  json["run"] = run->id();
  json["job"] = run->job();
  json["program"] = run->program();
}

class EventLog final : public Log {
 public:
  EventLog(std::string path, const Clock& clock, uint64_t file_bytes_max)
      : path_(std::move(path)), clock_(clock), file_bytes_max_(file_bytes_max) {
    Open();
  }

  void Reopen() override { Open(); }

  void RunStarted(const Run& run) override {
    Json json = Event(clock_, "run_started");
    AddRun(json, run);
    json["torch"] = run.torch_version();
    json["world_size"] = run.world_size();
    Write(Line(json));
  }

  void RunEnded(const Run& run, const RunState& state) override {
    Json json = Event(clock_, "run_ended");
    AddRun(json, run);
    json["values_bad"] = state.values_bad();
    json["records_dropped"] = state.records_dropped();
    json["holes"] = state.holes();
    Write(Line(json));
  }

  void CommandEnded(const JobExit& exit) override {
    Json json = Event(clock_, "command_ended");
    json["job"] = exit.job;
    json["pid"] = exit.pid;
    json["exit_code"] = exit.exit_code ? Json(*exit.exit_code) : Json();
    json["signal"] = exit.signal ? Json(*exit.signal) : Json();
    Write(Line(json));
  }

  void IncidentSeen(const Verdict& verdict, const Incident& incident, bool reach_grew) override {
    Json json = Event(clock_, reach_grew ? "reach_grew" : "incident");
    AddRunInfo(json, RunWithId(verdict, incident.origin().run()));
    json["verdict"] = incident.severity() == "info" ? "expected" : "anomaly";
    json["severity"] = incident.severity();
    json["reach"] =
        Json(std::vector<std::string>(incident.reach().begin(), incident.reach().end()));
    json["origin"] = JsonOf(incident.origin());
    if (!incident.expected_by().empty()) {
      json["expected_by"] = std::string(wire::CutText(incident.expected_by(), kRuleBytesMax));
    }
    if (incident.has_pattern()) json["pattern"] = incident.pattern().id();
    // Names may be long: what does not fit is left out, largest first.
    std::string line = Line(json);
    for (const char* part : {"inputs", "outputs"}) {
      if (line.size() <= kEventBytesMax) break;
      json["origin"].erase(part);
      line = Line(json);
    }
    if (line.size() > kEventBytesMax) {
      json["origin"] = Json{{"op", incident.origin().op()}, {"step", incident.origin().step()}};
      line = Line(json);
    }
    Write(line);
  }

  void LevelChanged(const Run& run, uint32_t step, const LevelFact& level) override {
    Json json = Event(clock_, "level");
    AddRun(json, run);
    json["step"] = step;
    json["from"] = LevelName(level.from());
    json["to"] = LevelName(level.to());
    json["text"] = LevelSentence(level);
    Write(Line(json));
  }

  // Its texts are our own and its numbers few: it fits.
  void WarningSeen(const Verdict& verdict, const Warning& warning) override {
    Json json = Event(clock_, "warning");
    AddRunInfo(json, RunWithId(verdict, warning.run()));
    json["warning"] = JsonOf(warning);
    Write(Line(json));
  }

  void FileUnreadable(const std::string& name, const std::string& reason) override {
    Json json = Event(clock_, "file_unreadable");
    json["name"] = name;
    json["reason"] = reason;
    Write(Line(json));
  }

  void Trouble(const std::string& sentence) override {
    Json json = Event(clock_, "trouble");
    json["message"] = sentence;
    Write(Line(json));
  }

  void Remark(const std::string& sentence) override {
    Json json = Event(clock_, "remark");
    json["message"] = sentence;
    Write(Line(json));
  }

 private:
  void Open() {
    fd_ =
        UniqueFd(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    struct stat info {};
    bytes_ = fd_.valid() && fstat(fd_.get(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
    if (bytes_ != 0) return;
    Json header = Event(clock_, "log_begun");
    header["format"] = "nanwatch.events/1";
    header["pid"] = getpid();
    header["monotonic_ns"] = clock_.monotonic_ns();
    Write(Line(header));
  }

  void Rotate() {
    for (int i = kEventFilesKept - 1; i > 0; --i) {
      const std::string from = path_ + "." + std::to_string(i);
      rename(from.c_str(), (path_ + "." + std::to_string(i + 1)).c_str());
    }
    if (rename(path_.c_str(), (path_ + ".1").c_str()) == 0) Open();
  }

  [[nodiscard]] bool IsInPlace() const {
    struct stat held {};
    struct stat named {};
    return fstat(fd_.get(), &held) == 0 && lstat(path_.c_str(), &named) == 0 &&
           held.st_ino == named.st_ino && held.st_dev == named.st_dev;
  }

  void Write(const std::string& line) {
    // Its directory may be removed, and made again.
    if (!IsInPlace() && !std::exchange(opening_, true)) {
      Open();
      opening_ = false;
    }
    if (bytes_ != 0 && bytes_ + line.size() > file_bytes_max_) Rotate();
    if (bytes_ != 0 && bytes_ + line.size() > file_bytes_max_) {
      ++lost_lines_;  // the directory takes no other name: the file stays as large as it may be
      return;
    }
    if (lost_lines_ > 0) {
      Json lost = Event(clock_, "lines_lost");
      lost["count"] = lost_lines_;
      const std::string text = Line(lost);
      if (write(fd_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()))
        lost_lines_ = 0;
    }
    const ssize_t wrote = write(fd_.get(), line.data(), line.size());
    if (wrote == static_cast<ssize_t>(line.size())) {
      bytes_ += line.size();
      return;
    }
    ++lost_lines_;
    // Half a line would spoil the next one.
    if (wrote > 0 && ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0)
      (void)!write(fd_.get(), "\n", 1);
  }

  std::string path_;
  const Clock& clock_;
  uint64_t file_bytes_max_;
  UniqueFd fd_;
  uint64_t bytes_ = 0;
  uint64_t lost_lines_ = 0;
  bool opening_ = false;  // the header of a new file is a line, too
};

}  // namespace

std::unique_ptr<Log> MakeEventLog(std::string path, const Clock& clock, uint64_t file_bytes_max) {
  return std::make_unique<EventLog>(std::move(path), clock, file_bytes_max);
}

}  // namespace nanwatch
