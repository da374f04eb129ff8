// SPDX-License-Identifier: Apache-2.0
// What is answered about the jobs of a fleet.
//
//   GET /api/v1/jobs  /runs  /hosts  /jobs/ID/verdict  /jobs/ID/page  /jobs/ID/facts
//
// ID may be JOB@LAUNCH; fleet_documents.h says what each is. Where it is both, the header Accept
// chooses application/x-protobuf. An answer is kept for a moment after it was made, at most two
// seconds.
//
// Any thread. As many questions at once as there are readers; some more wait, and beyond these the
// answer is 429: questions never take the threads that rows need.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/gather/fleet_documents.h"
#include "daemon/gather/fleet_reader.h"
#include "daemon/http/http_server.h"

namespace nanwatch {

inline constexpr size_t kFleetQuestionsWaitingMax = 16;

class FleetAnswers {
 public:
  // `readers` may be empty: then the answer says how to get some.
  FleetAnswers(std::vector<std::unique_ptr<FleetReader>> readers, const Clock& clock)
      : has_readers_(!readers.empty()), idle_readers_(std::move(readers)), clock_(clock) {}

  // For a path that begins with /api/v1/.
  [[nodiscard]] HttpAnswer Answer(const HttpRequest& request);

 private:
  struct Kept {
    uint64_t made_ns = 0;
    uint64_t kept_for_ns = 0;
    std::shared_ptr<const FleetDocument> made;
  };
  using Make = std::function<Result<FleetDocument>(FleetReader& reader)>;

  using Name = std::pair<std::string, std::string>;  // a tenant, and what it asks for

  // What is kept under this name, or made anew by one of those who ask for it.
  [[nodiscard]] Result<std::shared_ptr<const FleetDocument>> Ask(const Name& name,
                                                                 const Make& make);
  [[nodiscard]] static Result<FleetDocument> MakeIfThereIsMemory(const Make& make,
                                                                 FleetReader& reader);
  [[nodiscard]] bool AwaitTurn(std::unique_lock<std::mutex>& lock, const Name& name);
  [[nodiscard]] const Kept* FindFresh(const Name& name) const;
  void Keep(const Name& name, std::shared_ptr<const FleetDocument> made, uint64_t took_ns);

  const bool has_readers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<FleetReader>> idle_readers_;
  std::set<Name> being_made_;
  std::map<Name, Kept> kept_;
  size_t waiting_ = 0;
  const Clock& clock_;
};

}  // namespace nanwatch
