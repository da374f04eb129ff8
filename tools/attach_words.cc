// SPDX-License-Identifier: Apache-2.0
#include "tools/attach_words.h"

#include <nlohmann/json.hpp>

#include "daemon/base/clock.h"
#include "daemon/correlate/wire_names.h"
#include "tools/table.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;

Json AsJson(const AttachTarget& target, const AttachOptions& options) {
  const Run& run = target.run.run;
  Json json = {{"run", target.run.id},
               {"job", target.run.job},
               {"rank", run.rank()},
               {"pid", run.pid()},
               {"level", options.level},
               {"stacks", options.stacks},
               {"before", nullptr},
               {"applied", target.applied_after_ns.has_value()},
               {"applied_after_ms", nullptr},
               {"problem", target.problem},
               {"applies_at_next_cell", target.idle}};
  if (target.request) json["before"] = LevelName(static_cast<uint32_t>(target.request->before()));
  if (target.applied_after_ns) {
    json["applied_after_ms"] = static_cast<double>(*target.applied_after_ns) / 1e6;
  }
  return json;
}

}  // namespace

std::string AsLine(const AttachTarget& target, const AttachOptions& options) {
  const Run& run = target.run.run;
  std::string line = target.run.id.substr(0, 8) + "  " + run.program() + ", rank " +
                     std::to_string(run.rank()) + ", pid " + std::to_string(run.pid()) + ": ";
  if (target.applied_after_ns) {
    line += options.level + (options.stacks ? " with stacks" : "") + ", was " +
            LevelName(static_cast<uint32_t>(target.request->before())) + "; applied after " +
            std::to_string(*target.applied_after_ns / 1'000'000) + " ms";
    if (options.for_s > 0) {
      line += "; back to " + std::string(LevelName(run.level())) + " in " +
              FormatAge(static_cast<uint64_t>(options.for_s * static_cast<double>(kNsPerSecond)));
    }
  } else if (target.idle) {
    line +=
        options.level + (options.stacks ? " with stacks" : "") +
        " is requested and applies at the next cell: this notebook kernel is not running one now";
  } else {
    line += target.problem;
  }
  return line + "\n";
}

Json AttachDocument(const std::vector<AttachTarget>& targets, const AttachOptions& options,
                    const std::string& loaded, const Refusal& refusal) {
  Json document = {{"schema", "nanwatch.attach/1"},
                   {"targets", Json::array()},
                   {"loaded", loaded.empty() ? Json(nullptr) : Json(loaded)},
                   {"reason", refusal.reason.empty() ? Json(nullptr) : Json(refusal.reason)},
                   {"problem", refusal.problem}};
  for (const AttachTarget& target : targets) document["targets"].push_back(AsJson(target, options));
  return document;
}

}  // namespace nanwatch
