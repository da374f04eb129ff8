// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/former_launches.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/store/rows.h"

namespace nanwatch {
namespace {

bool TakeNumber(std::string_view& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(digits);
  return digits > 0;
}

bool Take(char c, std::string_view& text) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

struct FormerRuns {
  std::vector<std::pair<int64_t, Run>> runs;  // by key
  uint64_t began_real_ns = 0;                 // of the newest
};

// Nothing where one of them belongs to the launch that begins.
Result<FormerRuns> FindFormer(const Database& database, const std::string& job,
                              uint64_t began_real_ns) {
  Result<Statement> find =
      database.Prepare("SELECT key, identity, state, updated_real_ns FROM run WHERE job = ?1");
  if (!find.ok()) return find.status();
  find->BindText(1, job);
  FormerRuns former;
  for (Result<bool> row = find->Next();; row = find->Next()) {
    if (!row.ok()) return row.status();
    if (!*row) return former;
    auto& [key, run] = former.runs.emplace_back(find->Integer(0), Run());
    RunState state;
    if (Status parsed = Parse(find->Bytes(1), run); !parsed.ok()) return parsed;
    if (Status parsed = Parse(find->Bytes(2), state); !parsed.ok()) return parsed;
    if (!IsFormerLaunch(state, find->Unsigned(3), began_real_ns)) return FormerRuns();
    former.began_real_ns = std::max(former.began_real_ns, run.started_real_ns());
  }
}

Status Rename(const Database& database, const FormerRuns& former, const std::string& job,
              const std::string& name) {
  for (auto [key, run] : former.runs) {
    run.set_job(name);
    Result<Statement> write =
        database.Prepare("UPDATE run SET job = ?2, identity = ?3 WHERE key = ?1");
    if (!write.ok()) return write.status();
    write->Bind(1, key).BindText(2, name).BindBlob(3, run.SerializeAsString());
    if (Status written = write->Run(); !written.ok()) return written;
  }
  for (const char* sql : {"UPDATE OR REPLACE incident SET job = ?2 WHERE job = ?1",
                          "UPDATE OR REPLACE warning SET job = ?2 WHERE job = ?1",
                          "UPDATE OR REPLACE job_exit SET job = ?2 WHERE job = ?1"}) {
    Result<Statement> write = database.Prepare(sql);
    if (!write.ok()) return write.status();
    if (Status written = write->BindText(1, job).BindText(2, name).Run(); !written.ok())
      return written;
  }
  return Status();
}

}  // namespace

bool IsRepeatingJob(const std::string& job) {
  // 4711.0, and 4711.0-2 for the second `nanwatch run` of a task.
  std::string_view text = job;
  if (!TakeNumber(text) || !Take('.', text) || !TakeNumber(text)) return false;
  return text.empty() || (Take('-', text) && TakeNumber(text) && text.empty());
}

bool IsFormerLaunch(const RunState& state, uint64_t updated_real_ns, uint64_t began_real_ns) {
  const uint64_t last = state.ended_real_ns() > 0 ? state.ended_real_ns() : updated_real_ns;
  return state.ended() && last + kLaunchGapNs < began_real_ns;
}

Status SetAsideFormerLaunch(const Database& database, const std::string& job,
                            uint64_t began_real_ns) {
  if (!IsRepeatingJob(job)) return Status();
  const Result<FormerRuns> former = FindFormer(database, job, began_real_ns);
  if (!former.ok()) return former.status();
  if (former->runs.empty()) return Status();
  const std::string day = FormatUtc(former->began_real_ns).substr(0, 10);
  return Rename(database, *former, job, job + "@" + day);
}

}  // namespace nanwatch
