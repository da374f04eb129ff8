// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/fleet_answers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <optional>
#include <string_view>

#include "daemon/fleet/otlp_logs.h"
#include "daemon/gather/fleet_documents.h"

namespace nanwatch {
namespace {

using MakeDocument = Result<FleetDocument> (*)(const FleetQuestion& question,
                                               const std::string& id);

struct Path {
  std::string_view before, behind;  // its id; without an id both are one
  MakeDocument make;
};
constexpr std::array kPaths = {
    Path{"/api/v1/jobs", "", &JobListOf},    Path{"/api/v1/runs", "", &RunListOf},
    Path{"/api/v1/hosts", "", &HostListOf},  Path{"/api/v1/jobs/", "/verdict", &VerdictOf},
    Path{"/api/v1/jobs/", "/page", &PageOf}, Path{"/api/v1/jobs/", "/facts", &FactsOf}};

struct Question {
  MakeDocument make;
  std::string id;
};

std::optional<Question> QuestionOf(const std::string& path) {
  for (const Path& one : kPaths) {
    if (one.behind.empty() ? path != one.before
                           : path.size() <= one.before.size() + one.behind.size() ||
                                 !path.starts_with(one.before) || !path.ends_with(one.behind))
      continue;
    const size_t length = path.size() - one.before.size() - one.behind.size();
    return Question{one.make, path.substr(one.before.size(), length)};
  }
  return std::nullopt;
}

// An answer is kept for as long as it took to make, within these: what is asked for all the time
// takes half of a reader at most, and what arrived is in an answer within seconds.
constexpr uint64_t kKeptLeastNs = kNsPerSecond / 4;
constexpr uint64_t kKeptMostNs = 2 * kNsPerSecond;
constexpr size_t kKeptMax = 16;
constexpr std::chrono::seconds kPatience{20};
constexpr int kAskAgainSeconds = 1;

HttpAnswer Failure(const Status& why) {
  if (why.kind() == ErrorKind::kNotFound) return {.status = 404, .body = why.message() + "\n"};
  return {.status = why.kind() == ErrorKind::kBusy ? 429 : 503,
          .body = why.message() + "\n",
          .retry_after_s = kAskAgainSeconds};
}

}  // namespace

HttpAnswer FleetAnswers::Answer(const HttpRequest& request) {
  if (!has_readers_)
    return {.status = 404,
            .body = "nothing is read here: start nanwatch-gather with --read-database\n"};
  const std::optional<Question> question = QuestionOf(request.path);
  if (!question.has_value())
    return {.status = 404,
            .body =
                "ask for /api/v1/jobs, /api/v1/runs, /api/v1/hosts, or "
                "/api/v1/jobs/ID/verdict, /page or /facts\n"};
  const Result<std::shared_ptr<const FleetDocument>> made =
      Ask({request.tenant, request.path}, [&](FleetReader& reader) {
        return question->make({reader, request.tenant, clock_}, question->id);
      });
  if (!made.ok()) return Failure(made.status());
  const bool wants_protobuf = request.accept == kOtlpType || (*made)->json.empty();
  if (wants_protobuf && !(*made)->protobuf.empty())
    return {.type = kOtlpType, .body = (*made)->protobuf};
  return {.type = "application/json", .body = (*made)->json};
}

// ---- one at a time for each name

Result<std::shared_ptr<const FleetDocument>> FleetAnswers::Ask(const Name& name, const Make& make) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!AwaitTurn(lock, name))
    return Status(ErrorKind::kBusy, "too many questions at once: ask again later");
  if (const Kept* kept = FindFresh(name)) return kept->made;
  std::unique_ptr<FleetReader> reader = std::move(idle_readers_.back());
  idle_readers_.pop_back();
  being_made_.insert(name);
  lock.unlock();
  const uint64_t began_ns = clock_.monotonic_ns();
  Result<FleetDocument> made = MakeIfThereIsMemory(make, *reader);
  std::shared_ptr<const FleetDocument> shared;
  const Status status = made.status();
  if (made.ok()) shared = std::make_shared<const FleetDocument>(*std::move(made));
  lock.lock();
  being_made_.erase(name);
  idle_readers_.push_back(std::move(reader));
  if (shared != nullptr) Keep(name, shared, clock_.monotonic_ns() - began_ns);
  changed_.notify_all();
  if (shared == nullptr) return status;
  return shared;
}

// The reader has to come back whatever happens.
Result<FleetDocument> FleetAnswers::MakeIfThereIsMemory(const Make& make, FleetReader& reader) {
  try {
    return make(reader);
  } catch (const std::bad_alloc&) {
    return Status(ErrorKind::kResources, "this gatherer has no memory for so large a job");
  }
}

// Until the answer is there, or it can be made; false where that lasts too long.
bool FleetAnswers::AwaitTurn(std::unique_lock<std::mutex>& lock, const Name& name) {
  const auto is_turn = [&] {
    return FindFresh(name) != nullptr || (!idle_readers_.empty() && !being_made_.contains(name));
  };
  if (is_turn()) return true;
  if (waiting_ >= kFleetQuestionsWaitingMax) return false;
  ++waiting_;
  const bool came = changed_.wait_for(lock, kPatience, is_turn);
  --waiting_;
  return came;
}

const FleetAnswers::Kept* FleetAnswers::FindFresh(const Name& name) const {
  const auto kept = kept_.find(name);
  const bool is_fresh = kept != kept_.end() &&
                        clock_.monotonic_ns() - kept->second.made_ns < kept->second.kept_for_ns;
  return is_fresh ? &kept->second : nullptr;
}

void FleetAnswers::Keep(const Name& name, std::shared_ptr<const FleetDocument> made,
                        uint64_t took_ns) {
  kept_[name] = {.made_ns = clock_.monotonic_ns(),
                 .kept_for_ns = std::clamp(took_ns, kKeptLeastNs, kKeptMostNs),
                 .made = std::move(made)};
  if (kept_.size() <= kKeptMax) return;
  kept_.erase(std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
    return a.second.made_ns < b.second.made_ns;
  }));
}

}  // namespace nanwatch
