// SPDX-License-Identifier: Apache-2.0
#include "daemon/store/outbox_sent.h"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

namespace nanwatch {
namespace {

constexpr char kSentWord[] = "nanwatch.sent/1";
constexpr char kRefusedWord[] = "refused";
constexpr char kMarkWord[] = "mark";
// Marks may be so far apart, and half as far as the older of them is old.
constexpr uint64_t kMarksApartNs = 2'000'000'000;

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
  while (refused.runs.size() < kRefusedRunsMax && file >> word && IsRunId(word) &&
         file >> of_run.findings >> of_run.records)
    refused.runs[word] = of_run;
  return refused;
}

SentMarks ReadMarks(const std::string& state_dir) {
  SentMarks marks;
  std::ifstream file(SentPath(state_dir));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word, row;
    SentMark mark;
    if (!(words >> word >> mark.at_real_ns) || word != kMarkWord) continue;
    for (uint64_t& lane : mark.up_to) words >> lane;
    if (!words || !std::getline(words >> std::ws, row)) continue;
    std::optional<HeldRow> held = ParseHeldRow(row);
    if (!held) continue;
    mark.row = *std::move(held);
    marks.push_back(std::move(mark));
  }
  return marks;
}

void AddMark(SentMarks& marks, SentMark newest) {
  const uint64_t now_ns = newest.at_real_ns;
  // The clock may be set back.
  std::erase_if(marks, [&](const SentMark& mark) {
    return mark.at_real_ns > now_ns || now_ns - mark.at_real_ns > kSentMarksKeptNs;
  });
  marks.push_back(std::move(newest));
  for (size_t i = marks.size() - 1; i-- > 1;) {
    const uint64_t older_ns = now_ns - marks[i - 1].at_real_ns;
    const uint64_t newer_ns = now_ns - marks[i + 1].at_real_ns;
    if (older_ns - newer_ns <= kMarksApartNs + older_ns / 2)
      marks.erase(marks.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

Status WriteSent(const std::string& state_dir, const SentUpTo& sent, const RefusedRows& refused,
                 const SentMarks& marks) {
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
    for (const SentMark& mark : marks) {
      file << kMarkWord << ' ' << mark.at_real_ns;
      for (const uint64_t lane : mark.up_to) file << ' ' << lane;
      file << ' ' << ToText(mark.row) << '\n';
    }
    file.close();
    if (!file) return Status::FromErrno(errno, "cannot write " + fresh);
  }
  if (rename(fresh.c_str(), path.c_str()) != 0)
    return Status::FromErrno(errno, "cannot write " + path);
  return Status();
}

}  // namespace nanwatch
