// SPDX-License-Identifier: Apache-2.0
#include "tools/source_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/unique_fd.h"

namespace nanwatch {
namespace {

constexpr off_t kFileBytesMax = 4 << 20;
constexpr int kLinesAround = 4;

// "model.py:41 in forward", taken apart.
struct SourceName {
  std::string file;
  int line = 0;
  std::string function;
};

std::optional<SourceName> Parse(const std::string& source) {
  const size_t in = source.rfind(" in ");
  if (in == std::string::npos) return std::nullopt;
  const size_t colon = source.rfind(':', in);
  if (colon == std::string::npos) return std::nullopt;
  SourceName name = {.file = source.substr(0, colon), .line = 0, .function = source.substr(in + 4)};
  const std::string digits = source.substr(colon + 1, in - colon - 1);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), name.line);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  if (!is_number || name.line < 1 || !name.file.ends_with(".py")) return std::nullopt;
  return name;
}

// The lines of a file that is a regular one, small, and no younger than the run.
std::vector<std::string> LinesOf(const std::string& path, const std::string& started_at) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd.valid() || fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size > kFileBytesMax)
    return {};
  const auto changed = static_cast<uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000u +
                       static_cast<uint64_t>(status.st_mtim.tv_nsec);
  if (!started_at.empty() && FormatUtc(changed) > started_at) return {};
  std::string text(static_cast<size_t>(status.st_size), '\0');
  const ssize_t got = read(fd.get(), text.data(), text.size());
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

size_t IndentOf(const std::string& line) {
  const size_t indent = line.find_first_not_of(" \t");
  return indent == std::string::npos ? line.size() : indent;
}

// Whether the `def` that holds line `at` (from 0) is of this name; "<module>" and other names in
// angle brackets have none.
bool IsIn(const std::vector<std::string>& lines, size_t at, const std::string& function) {
  if (function.starts_with('<')) return true;
  size_t indent = IndentOf(lines[at]);
  for (size_t i = at; i-- > 0 && indent > 0;) {
    const size_t own = IndentOf(lines[i]);
    if (own >= indent || own == lines[i].size()) continue;
    const std::string_view text = std::string_view(lines[i]).substr(own);
    if (text.starts_with("def " + function + "(") ||
        text.starts_with("async def " + function + "("))
      return true;
    if (text.starts_with("def ") || text.starts_with("class ")) return false;
    indent = own;
  }
  return false;
}

// Where the words of a command lead to a script.
std::set<std::string> FoldersOf(const RunInfo& run) {
  std::set<std::string> folders;
  for (const std::string& word : run.command()) {
    if (!word.ends_with(".py")) continue;
    std::error_code error;
    // An absolute one stays what it is.
    const std::filesystem::path script =
        std::filesystem::absolute(std::filesystem::path(run.directory()) / word, error);
    if (!error && std::filesystem::exists(script, error))
      folders.insert(script.lexically_normal().parent_path());
  }
  return folders;
}

}  // namespace

std::optional<SourceLines> SourceLinesOf(const Verdict& verdict) {
  if (verdict.incidents().empty()) return std::nullopt;
  const std::optional<SourceName> name = Parse(verdict.incidents(0).origin().source());
  if (!name.has_value() || name->file.find('/') != std::string::npos) return std::nullopt;
  for (const std::string& folder : FoldersOf(verdict.run())) {
    const std::string path = folder + "/" + name->file;
    const std::vector<std::string> lines = LinesOf(path, verdict.run().started_at());
    const auto at = static_cast<size_t>(name->line - 1);
    if (at >= lines.size() || !IsIn(lines, at, name->function)) continue;
    const size_t first = at > kLinesAround ? at - kLinesAround : 0;
    const size_t last = std::min(lines.size(), at + kLinesAround + 1);
    return SourceLines{.path = path,
                       .first = static_cast<int>(first + 1),
                       .marked = name->line,
                       .lines = {lines.begin() + static_cast<std::ptrdiff_t>(first),
                                 lines.begin() + static_cast<std::ptrdiff_t>(last)}};
  }
  return std::nullopt;
}

std::string SourcePathOf(const Verdict& verdict) {
  const std::optional<SourceLines> lines = SourceLinesOf(verdict);
  return lines.has_value() ? lines->path : "";
}

}  // namespace nanwatch
