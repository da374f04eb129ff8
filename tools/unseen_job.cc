// SPDX-License-Identifier: Apache-2.0
#include "tools/unseen_job.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <string_view>

#include "tools/whole_file.h"

namespace nanwatch {
namespace {

constexpr std::string_view kUnseenPrefix = "unseen-";
constexpr size_t kDigits = 20;  // of a 64-bit number

std::optional<UnseenJob> ParseName(std::string_view name) {
  if (!name.starts_with(kUnseenPrefix)) return std::nullopt;
  name.remove_prefix(kUnseenPrefix.size());
  if (name.size() < kDigits + 2 || name[kDigits] != '-' || name.ends_with(".tmp"))
    return std::nullopt;
  UnseenJob job;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + kDigits, job.started_real_ns);
  if (error != std::errc() || end != name.data() + kDigits) return std::nullopt;
  job.job = name.substr(kDigits + 1);
  return job;
}

std::string PathOf(const Places& places, uint64_t started_real_ns, const std::string& job) {
  return fmt::format("{}/{}{:0{}}-{}", places.state_dir, kUnseenPrefix, started_real_ns, kDigits,
                     job);
}

}  // namespace

std::vector<UnseenJob> UnseenJobs(const Places& places) {
  std::vector<UnseenJob> jobs;
  if (places.state_dir.empty()) return jobs;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(places.state_dir.c_str()), closedir);
  if (stream == nullptr) return jobs;
  while (const dirent* entry = readdir(stream.get())) {
    std::optional<UnseenJob> job = ParseName(entry->d_name);
    if (!job.has_value()) continue;
    job->path = places.state_dir + "/" + entry->d_name;
    jobs.push_back(*std::move(job));
  }
  std::sort(jobs.begin(), jobs.end(), [](const UnseenJob& a, const UnseenJob& b) {
    return a.started_real_ns > b.started_real_ns;
  });
  return jobs;
}

std::optional<UnseenJob> FindUnseen(const Places& places, const std::string& name) {
  for (UnseenJob& job : UnseenJobs(places)) {
    if (job.job.starts_with(name)) return std::move(job);
    const std::optional<Verdict> verdict = ReadUnseen(job);
    if (verdict.has_value() && std::to_string(verdict->run().pid()) == name) return std::move(job);
  }
  return std::nullopt;
}

std::optional<Verdict> ReadUnseen(const UnseenJob& job) {
  std::ifstream file(job.path, std::ios::binary);
  Verdict verdict;
  if (!file || !verdict.ParseFromIstream(&file)) return std::nullopt;
  return verdict;
}

void KeepUnseen(const Places& places, uint64_t started_real_ns, const Verdict& verdict) {
  if (places.state_dir.empty() || !EnsureStateDirectory(places.state_dir).ok()) return;
  const std::string path = PathOf(places, started_real_ns, verdict.run().job());
  if (!WriteWholeFile(path, verdict.SerializeAsString())) return;
  size_t kept = 0;
  for (const UnseenJob& job : UnseenJobs(places)) {
    const bool is_older = job.job == verdict.run().job() && job.started_real_ns < started_real_ns;
    if (is_older || ++kept > kUnseenMax) unlink(job.path.c_str());
  }
}

}  // namespace nanwatch
