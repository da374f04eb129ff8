// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/job_verdicts.h"

#include <algorithm>
#include <limits>
#include <new>
#include <optional>

namespace nanwatch {
namespace {

// A burst of records is judged once, not once a record.
constexpr uint64_t kDebounceNs = 100'000'000;
// A job with many records may take at most a tenth of one core.
constexpr uint64_t kRestPerWork = 9;
constexpr uint64_t kVerdictRetryNs = kNsPerSecond;
constexpr uint64_t kVerdictRetryMaxNs = 600 * kNsPerSecond;
constexpr int kDoubledMax = 10;
constexpr uint64_t kFailureEveryNs = 60 * kNsPerSecond;
// How often the loop asks for a judgment that takes long, without a live job.
constexpr uint64_t kJudgedEveryNs = 25'000'000;
constexpr uint64_t kDrainNs = 10 * kNsPerSecond;
// Jobs whose reported incidents are kept in memory; the rest is in the database.
constexpr size_t kJobsRemembered = 256;

std::string Identity(const Incident& incident) {
  const Finding& origin = incident.origin();
  std::string identity;
  for (const std::string& part :
       {origin.run(), origin.kind(), origin.op(), origin.layer(), origin.root(), origin.phase(),
        origin.autograd_node(), origin.param(), origin.source(), incident.expected_by()}) {
    identity += part;
    identity += '\n';
  }
  return identity;
}

}  // namespace

void JobVerdicts::Touch(const std::string& job) {
  if (due_.contains(job)) return;
  const uint64_t now_ns = clock_.monotonic_ns();
  uint64_t due_ns = now_ns + kDebounceNs;
  if (const auto known = jobs_.find(job); known != jobs_.end()) {
    due_ns = std::max(due_ns, known->second.renewed_at_ns + kRestPerWork * known->second.cost_ns);
  }
  due_[job] = due_ns;
}

uint64_t JobVerdicts::next_due_ns() const {
  if (judge_.is_busy()) return clock_.monotonic_ns() + kJudgedEveryNs;
  uint64_t next = std::numeric_limits<uint64_t>::max();
  for (const auto& [job, due_ns] : due_) next = std::min(next, due_ns);
  return next;
}

Status JobVerdicts::Renew(Store& store, bool all) {
  Status failed;
  const uint64_t now_ns = clock_.monotonic_ns();
  std::map<std::string, uint64_t> later;
  while (judge_.is_busy() || BeginNext(store, all)) {
    const std::optional<Judge::Judgment> judgment =
        judge_.Take(all ? kWait : RemainingPatience(now_ns));
    if (!judgment) break;
    if (judgment->generation != generation_) continue;
    const Status kept = TryKeep(*judgment, store);
    Job& job = jobs_[judgment->job];
    job.renewed_at_ns = clock_.monotonic_ns();
    job.cost_ns = job.renewed_at_ns - job.begun_at_ns;
    if (kept.ok()) {
      job.failures = 0;
      continue;
    }
    // A row that makes no sense will make none in a second.
    if (kept.kind() != ErrorKind::kUnsupported) later[judgment->job] = AfterFailure(job);
    ReportFailure(judgment->job, kept);
    if (failed.ok()) failed = kept;
  }
  due_.merge(later);
  return failed;
}

void JobVerdicts::DrainJudge() {
  const std::optional<Judge::Judgment> judgment = judge_.Take(kDrainNs);
  if (judgment && judgment->generation == generation_)
    due_.try_emplace(judgment->job, clock_.monotonic_ns());
}

void JobVerdicts::ForgetStore() {
  DrainJudge();
  ++generation_;
  due_.clear();
}

// When a job that failed just now is tried again.
uint64_t JobVerdicts::AfterFailure(Job& job) const {
  const uint64_t first_ns = std::max(kVerdictRetryNs, kRestPerWork * job.cost_ns);
  const int doubled = std::min(job.failures++, kDoubledMax);
  return job.renewed_at_ns + std::min(first_ns << doubled, kVerdictRetryMaxNs);
}

// Of a call of Renew that began then.
uint64_t JobVerdicts::RemainingPatience(uint64_t begun_ns) const {
  if (patience_ns_ == kWait) return kWait;
  const uint64_t spent_ns = clock_.monotonic_ns() - begun_ns;
  return patience_ns_ - std::min(patience_ns_, spent_ns);
}

// The one that is due longest. False when none is.
bool JobVerdicts::BeginNext(const Store& store, bool all) {
  const auto next = std::min_element(
      due_.begin(), due_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (next == due_.end()) return false;
  const uint64_t now_ns = clock_.monotonic_ns();
  if (!all && now_ns < next->second) return false;
  if (jobs_.size() >= kJobsRemembered && !jobs_.contains(next->first)) jobs_.clear();
  jobs_[next->first].begun_at_ns = now_ns;
  judge_.Begin(store.path(), next->first, generation_);
  due_.erase(next);
  return true;
}

Status JobVerdicts::Keep(const Judge::Judgment& judgment, Store& store) {
  if (!judgment.verdict.ok()) return judgment.verdict.status();
  const std::string& name = judgment.job;
  const Verdict& verdict = *judgment.verdict;
  Job& job = jobs_[name];
  if (Status loaded = LoadReported(name, job, store); !loaded.ok()) return loaded;
  const std::vector<Incident> incidents(verdict.incidents().begin(), verdict.incidents().end());
  if (!incidents.empty() || !job.reported.empty()) {
    if (Status replaced = store.ReplaceIncidents(name, incidents); !replaced.ok()) return replaced;
  }
  const std::vector<Warning> warnings(verdict.warnings().begin(), verdict.warnings().end());
  if (!warnings.empty() || !job.warnings_reported.empty()) {
    if (Status replaced = store.ReplaceWarnings(name, warnings); !replaced.ok()) return replaced;
  }
  ReportIncidents(job, verdict);
  ReportWarnings(job, verdict);
  return Status();
}

Status JobVerdicts::TryKeep(const Judge::Judgment& judgment, Store& store) {
  try {
    return Keep(judgment, store);
  } catch (const std::bad_alloc&) {
    return Status(ErrorKind::kResources, "no memory");
  }
}

void JobVerdicts::ReportFailure(const std::string& name, const Status& why) {
  const uint64_t now_ns = clock_.monotonic_ns();
  if (reported_failure_at_ns_ != 0 && now_ns - reported_failure_at_ns_ < kFailureEveryNs) return;
  reported_failure_at_ns_ = now_ns;
  listener_.Trouble("the verdict of job " + name + " cannot be renewed (" + why.message() +
                    "): its findings are kept, and it is tried again" +
                    (why.kind() == ErrorKind::kUnsupported ? " when there are more" : ""));
}

// An earlier daemon has reported what it stored.
Status JobVerdicts::LoadReported(const std::string& name, Job& job, const Store& store) {
  if (job.loaded) return Status();
  const Result<std::vector<Incident>> incidents = store.Incidents(name);
  if (!incidents.ok()) return incidents.status();
  for (const Incident& incident : *incidents) {
    job.reported[Identity(incident)] = {static_cast<size_t>(incident.reach_size()),
                                        incident.severity()};
  }
  const Result<std::vector<Warning>> warnings = store.Warnings(name);
  if (!warnings.ok()) return warnings.status();
  for (const Warning& warning : *warnings) ++job.warnings_reported[warning.family()];
  job.loaded = true;
  return Status();
}

// Those of a family come in the order of their steps, so the new ones are the last.
void JobVerdicts::ReportWarnings(Job& job, const Verdict& verdict) {
  std::map<std::string, size_t> seen;
  for (const Warning& warning : verdict.warnings()) {
    size_t& reported = job.warnings_reported[warning.family()];
    if (++seen[warning.family()] <= reported) continue;
    listener_.WarningSeen(verdict, warning);
    ++reported;
  }
}

void JobVerdicts::ReportIncidents(Job& job, const Verdict& verdict) {
  for (const Incident& incident : verdict.incidents()) {
    const std::string identity = Identity(incident);
    const auto known = job.reported.find(identity);
    const bool is_new = known == job.reported.end();
    const Reported before = is_new ? Reported() : known->second;
    const auto reach_count = static_cast<size_t>(incident.reach_size());
    const bool grew = reach_count > before.reach_count || incident.severity() != before.severity;
    if (is_new || grew) listener_.IncidentSeen(verdict, incident, !is_new);
    // Not before: the listener may have no memory for it.
    job.reported[identity] = {std::max(reach_count, before.reach_count), incident.severity()};
  }
}

}  // namespace nanwatch
