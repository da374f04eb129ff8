// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/job_exits.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/store/rows.h"

namespace nanwatch {
namespace {

Status WriteExitToRuns(const Database& database, const JobExit& exit) {
  Result<Statement> find = database.Prepare(
      "SELECT key, state FROM run WHERE job = ?1 AND (pid = ?2 OR pid_outer = ?2)");
  if (!find.ok()) return find.status();
  find->BindText(1, exit.job).Bind(2, exit.pid);
  std::vector<std::pair<int64_t, RunState>> found;
  for (Result<bool> row = find->Next();; row = find->Next()) {
    if (!row.ok()) return row.status();
    if (!*row) break;
    auto& [key, state] = found.emplace_back(find->Integer(0), RunState());
    if (Status parsed = Parse(find->Bytes(1), state); !parsed.ok()) return parsed;
  }
  Result<Statement> write = database.Prepare("UPDATE run SET state = ?2 WHERE key = ?1");
  if (!write.ok()) return write.status();
  for (auto& [key, state] : found) {
    SetExit(state, exit);
    if (Status written = write->Bind(1, key).BindBlob(2, state.SerializeAsString()).Run();
        !written.ok()) {
      return written;
    }
  }
  return Status();
}

// Columns: pid, exit_code, signal, ended_real_ns.
Result<std::optional<JobExit>> ReadExit(Statement& find, const std::string& job) {
  const Result<bool> row = find.Next();
  if (!row.ok()) return row.status();
  if (!*row) return std::optional<JobExit>();
  JobExit exit;
  exit.job = job;
  exit.pid = static_cast<int32_t>(find.Integer(0));
  if (!find.IsNull(1)) exit.exit_code = static_cast<int32_t>(find.Integer(1));
  if (!find.IsNull(2)) exit.signal = static_cast<int32_t>(find.Integer(2));
  exit.ended_real_ns = find.Unsigned(3);
  return std::optional<JobExit>(std::move(exit));
}

}  // namespace

void SetExit(RunState& state, const JobExit& exit) {
  state.clear_exit_code();
  state.clear_signal();
  if (exit.exit_code) state.set_exit_code(*exit.exit_code);
  if (exit.signal) state.set_signal(*exit.signal);
}

Status WriteExit(const Database& database, const JobExit& exit) {
  Result<Statement> write = database.Prepare(
      "INSERT OR REPLACE INTO job_exit (job, pid, exit_code, signal, ended_real_ns) VALUES "
      "(?1,?2,?3,?4,?5)");
  if (!write.ok()) return write.status();
  write->BindText(1, exit.job)
      .Bind(2, exit.pid)
      .BindNull(3)
      .BindNull(4)
      .BindUnsigned(5, exit.ended_real_ns);
  if (exit.exit_code) write->Bind(3, *exit.exit_code);
  if (exit.signal) write->Bind(4, *exit.signal);
  if (Status written = write->Run(); !written.ok()) return written;
  return WriteExitToRuns(database, exit);
}

Result<std::optional<JobExit>> FindExit(const Database& database, const std::string& job,
                                        const Run& run) {
  Result<Statement> find = database.Prepare(
      "SELECT pid, exit_code, signal, ended_real_ns FROM job_exit WHERE job = ?1 AND pid IN (?2, "
      "?3)");
  if (!find.ok()) return find.status();
  find->BindText(1, job).Bind(2, run.pid()).Bind(3, run.pid_outer());
  return ReadExit(*find, job);
}

Result<std::optional<JobExit>> FindLastExit(const Database& database, const std::string& job) {
  Result<Statement> find = database.Prepare(
      "SELECT pid, exit_code, signal, ended_real_ns FROM job_exit WHERE job = ?1"
      " ORDER BY ended_real_ns DESC LIMIT 1");
  if (!find.ok()) return find.status();
  find->BindText(1, job);
  return ReadExit(*find, job);
}

}  // namespace nanwatch
