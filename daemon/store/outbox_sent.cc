// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/outbox_sent.h"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string_view>

namespace nanwatch {
namespace {

constexpr char kSentWord[] = "nanwatch.sent/1";
constexpr char kRefusedWord[] = "refused";
// Last in the file: a forwarder that does not know it has read all else by then.
constexpr std::string_view kHeldWord = "held ";

std::optional<SentUpTo> SentIn(std::istream& file) {
  std::string word;
  SentUpTo sent{};
  file >> word;
  for (uint64_t& lane : sent) file >> lane;
  if (!file || word != kSentWord) return std::nullopt;
  return sent;
}

}  // namespace

std::string SentPath(const std::string& state_dir) { return state_dir + "/outbox.sent"; }

SentUpTo ReadSent(const std::string& state_dir) {
  std::ifstream file(SentPath(state_dir));
  return SentIn(file).value_or(SentUpTo{});
}

bool IsSentDamaged(const std::string& state_dir) {
  std::ifstream file(SentPath(state_dir));
  return file.is_open() && !SentIn(file).has_value();
}

RefusedRows ReadRefused(const std::string& state_dir) {
  std::ifstream file(SentPath(state_dir));
  std::string line, word;
  std::getline(file, line);  // how far
  RefusedRows refused;
  if (!(file >> word >> refused.rows) || word != kRefusedWord) return {};
  RefusedRows::OfRun of_run;
  while (refused.runs.size() < kRefusedRunsMax && file >> word >> of_run.findings >> of_run.records)
    refused.runs[word] = of_run;
  return refused;
}

std::optional<HeldRow> ReadHeld(const std::string& state_dir) {
  std::ifstream file(SentPath(state_dir));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kHeldWord)) return ParseHeldRow(line.substr(kHeldWord.size()));
  }
  return std::nullopt;
}

Status WriteSent(const std::string& state_dir, const SentUpTo& sent, const RefusedRows& refused,
                 const std::optional<HeldRow>& held) {
  const std::string path = SentPath(state_dir);
  const std::string fresh = path + ".new";
  {
    std::ofstream file(fresh, std::ios::trunc);
    file << kSentWord;
    for (const uint64_t lane : sent) file << ' ' << lane;
    file << '\n';
    if (refused.rows > 0) file << kRefusedWord << ' ' << refused.rows << '\n';
    for (const auto& [run, of_run] : refused.runs)
      file << run << ' ' << of_run.findings << ' ' << of_run.records << '\n';
    if (held) file << kHeldWord << ToText(*held) << '\n';
    file.close();
    if (!file) return Status::FromErrno(errno, "cannot write " + fresh);
  }
  if (rename(fresh.c_str(), path.c_str()) != 0)
    return Status::FromErrno(errno, "cannot write " + path);
  return Status();
}

}  // namespace nanwatch
