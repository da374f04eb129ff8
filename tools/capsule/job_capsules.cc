// SPDX-License-Identifier: Apache-2.0
#include "tools/capsule/job_capsules.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "tools/capsule/capsule.h"
#include "tools/capsule/completion.h"

namespace nanwatch {

void AddCapsules(const std::string& directory, Verdict& verdict) {
  const std::vector<Capsule> capsules = ReadCapsules(directory);
  if (capsules.empty()) return;
  for (Incident& incident : *verdict.mutable_incidents()) {
    const Capsule* capsule = CapsuleOf(incident.origin(), capsules);
    if (capsule == nullptr) continue;
    incident.set_capsule(capsule->path);
    incident.set_replay(capsule->word);
  }
}

std::vector<std::string> SettleCapsules(const std::string& directory, const Verdict& verdict) {
  std::vector<std::string> problems = CompleteCapsules(directory);
  const std::vector<Capsule> capsules = ReadCapsules(directory);
  std::set<std::string> runs;
  for (const RunInfo& run : verdict.runs()) runs.insert(run.id());
  std::set<std::string> needed;
  for (const Incident& incident : verdict.incidents()) {
    const Capsule* capsule = CapsuleOf(incident.origin(), capsules);
    if (capsule != nullptr && incident.severity() != "info") needed.insert(capsule->path);
  }
  for (const Capsule& capsule : capsules) {
    if (!runs.contains(capsule.run) || needed.contains(capsule.path)) continue;
    std::error_code error;
    std::filesystem::remove_all(capsule.path, error);
    if (error) problems.push_back("'" + capsule.path + "' cannot be removed: " + error.message());
  }
  return problems;
}

}  // namespace nanwatch
