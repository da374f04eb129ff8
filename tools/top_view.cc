// SPDX-License-Identifier: Apache-2.0
#include "tools/top_view.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string_view>
#include <tuple>

#include "daemon/report/cell_text.h"
#include "daemon/report/text_layout.h"
#include "tools/sparkline.h"

namespace nanwatch {
namespace {

constexpr size_t kTrendColumnsMin = 8;
constexpr size_t kTrendColumnsMax = 32;
constexpr size_t kProgramColumnsMax = 24;
constexpr size_t kProgramColumnsMaxNarrow = 12;  // on screens below kWideColumns
constexpr size_t kWideColumns = 100;
constexpr size_t kMarkColumns = 2;   // "> " before the chosen row
constexpr size_t kLinesForKeys = 8;  // a lower screen has no line to spare for them
constexpr size_t kNewsMax = 6;       // lines; the place to read more is `tail`
constexpr char kKeys[] = "q quit   j/k move   sort by: r rank, o overhead, l loss";

constexpr std::string_view kEndColor = "\x1b[0m";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kRed = "\x1b[31m";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::string_view kReverse = "\x1b[7m";

// ---- cells

std::string BriefOrDash(std::optional<double> value) {
  return value.has_value() ? Brief(*value) : "-";
}

std::string RankText(const TopRow& row) {
  const std::string rank = std::to_string(row.rank);
  return row.world_size > 1 ? rank + "/" + std::to_string(row.world_size) : rank;
}

std::string RateText(const TopRow& row) {
  if (!row.steps_per_second.has_value()) return "-";
  const double rate = *row.steps_per_second;
  return fmt::format("{:.{}f}", rate, rate >= 100 ? 0 : rate >= 10 ? 1 : 2);
}

// A GradScaler's is a power of two.
std::string ScaleText(const TopRow& row) {
  if (!row.scale.has_value()) return "-";
  const bool whole = *row.scale >= 1 && *row.scale < 1e9 && std::floor(*row.scale) == *row.scale;
  return whole ? fmt::format("{:.0f}", *row.scale) : Brief(*row.scale);
}

std::string OverheadText(const TopRow& row) {
  return row.overhead_percent.has_value() ? fmt::format("{:.1f}", *row.overhead_percent) : "-";
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

// ---- columns

enum class Shown : uint8_t {
  kAlways,
  kWhereFilled,  // only if a row has something in it
};

struct ColumnKind {
  std::string_view title;
  bool right;
  size_t columns_min;  // so that columns stand still while numbers grow and shrink
  // What is dropped last has the lowest number.
  int importance;
  std::function<std::string(const TopRow&)> text;
  Shown shown = Shown::kAlways;
};

// From left to right.
std::vector<ColumnKind> Columns(size_t columns_max) {
  using Row = const TopRow&;
  const size_t program_max =
      columns_max < kWideColumns ? kProgramColumnsMaxNarrow : kProgramColumnsMax;
  return {
      {"JOB", false, 8, 14, [](Row row) { return row.job.substr(0, 12); }, Shown::kWhereFilled},
      {"RANK", true, 4, 0, RankText},
      {"PID", true, 6, 9, [](Row row) { return std::to_string(row.pid); }},
      {"PROGRAM", false, 8, 6,
       [program_max](Row row) { return CutToCells(row.program, program_max); }},
      {"STEP", true, 6, 1,
       [](Row row) { return row.step.has_value() ? std::to_string(*row.step) : "-"; }},
      {"STEP/S", true, 6, 5, RateText},
      {"LOSS", true, 9, 2, [](Row row) { return BriefOrDash(row.loss); }},
      {"GRADNORM", true, 9, 8, [](Row row) { return BriefOrDash(row.gradient_norm); }},
      {"UPDATE", true, 9, 13, [](Row row) { return BriefOrDash(row.update_ratio); },
       Shown::kWhereFilled},
      {"SCALE", true, 7, 12, ScaleText, Shown::kWhereFilled},
      {"LEVEL", false, 5, 11, [](Row row) { return OrDash(row.level); }},
      {"OVER%", true, 5, 7, OverheadText},
      {"FINDINGS", true, 8, 3, [](Row row) { return Grouped(row.findings); }},
      {"VERDICT", false, 8, 4, [](Row row) { return OrDash(row.verdict); }},
      {"STATE", false, 8, 10, [](Row row) { return row.state; }},
  };
}

// Whether a column says anything that the others do not.
bool IsShown(const ColumnKind& column, const std::vector<TopRow>& rows) {
  if (column.shown == Shown::kAlways) return true;
  if (column.title == "JOB") {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const TopRow& row) { return row.job != rows.front().job; });
  }
  return std::any_of(rows.begin(), rows.end(),
                     [&](const TopRow& row) { return column.text(row) != "-"; });
}

// A state that a person should see in the narrowest table too.
bool HasUnusualState(const std::vector<TopRow>& rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [](const TopRow& row) { return row.state != "watching"; });
}

struct Table {
  std::vector<ColumnKind> columns;
  std::vector<size_t> widths;
  size_t gap = 1;
  size_t trend_columns = 0;  // 0: it does not fit
};

size_t WidthOf(const ColumnKind& column, const std::vector<TopRow>& rows) {
  size_t width = std::max(column.columns_min, column.title.size());
  for (const TopRow& row : rows) width = std::max(width, CellsOf(column.text(row)));
  return width;
}

// The most important columns that fit into `columns_max` together. The first is always there.
Table ChooseColumns(const std::vector<TopRow>& rows, size_t columns_max) {
  std::vector<ColumnKind> all = Columns(columns_max);
  std::erase_if(all, [&](const ColumnKind& column) { return !IsShown(column, rows); });
  if (HasUnusualState(rows)) {
    for (ColumnKind& column : all) {
      if (column.title == "STATE") column.importance = 4;
    }
  }
  std::vector<size_t> by_importance(all.size());
  for (size_t i = 0; i < all.size(); ++i) by_importance[i] = i;
  std::stable_sort(by_importance.begin(), by_importance.end(),
                   [&](size_t a, size_t b) { return all[a].importance < all[b].importance; });
  std::set<size_t> chosen;
  size_t used = kMarkColumns;
  for (const size_t i : by_importance) {
    const size_t width = WidthOf(all[i], rows) + (chosen.empty() ? 0 : 1);
    if (!chosen.empty() && used + width > columns_max) break;
    used += width;
    chosen.insert(i);
  }
  Table table;
  for (const size_t i : chosen) {
    table.columns.push_back(all[i]);
    table.widths.push_back(WidthOf(all[i], rows));
  }
  size_t left = columns_max - std::min(columns_max, used);
  const size_t gaps = chosen.size() - 1;
  if (chosen.size() == all.size() && left > gaps + kTrendColumnsMin + 2) {
    table.gap = 2;
    left -= gaps;
  }
  const bool has_losses = std::any_of(rows.begin(), rows.end(),
                                      [](const TopRow& row) { return row.losses.size() > 1; });
  if (has_losses && left > kTrendColumnsMin + table.gap) {
    table.trend_columns = std::min(left - table.gap, kTrendColumnsMax);
  }
  return table;
}

std::string HeaderLine(const Table& table) {
  std::string line(kMarkColumns, ' ');
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (i > 0) line.append(table.gap, ' ');
    line += FillCells(table.columns[i].title, table.widths[i], table.columns[i].right);
  }
  if (table.trend_columns > 0) line.append(table.gap, ' ').append("LOSSES");
  return line;
}

std::string RowLine(const Table& table, const TopRow& row, bool chosen, bool unicode) {
  std::string line = chosen ? "> " : "  ";
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (i > 0) line.append(table.gap, ' ');
    line += FillCells(table.columns[i].text(row), table.widths[i], table.columns[i].right);
  }
  if (table.trend_columns > 0) {
    line.append(table.gap, ' ').append(Sparkline(row.losses, table.trend_columns, unicode));
  }
  return line;
}

// ---- lines

// What a line is about; colours follow from it.
enum class Tone : uint8_t { kPlain, kStrong, kQuiet, kWarning, kAlarm };

class Lines {
 public:
  explicit Lines(const TopFrame& frame) : frame_(frame) {}

  void Add(std::string_view text, Tone tone, bool chosen = false) {
    const size_t columns =
        frame_.columns == 0 ? std::numeric_limits<size_t>::max() : frame_.columns;
    std::string line = CutToCells(frame_.unicode ? std::string(text) : AsciiOf(text), columns);
    if (!chosen || !frame_.color) line.erase(line.find_last_not_of(' ') + 1);
    lines_.push_back(frame_.color ? Colored(line, tone, chosen) : line);
  }

  [[nodiscard]] std::vector<std::string> Take() {
    if (frame_.lines > 0 && lines_.size() > frame_.lines) lines_.resize(frame_.lines);
    return std::move(lines_);
  }

 private:
  static std::string Colored(const std::string& line, Tone tone, bool chosen) {
    std::string start = chosen ? std::string(kReverse) : "";
    if (tone == Tone::kStrong) start += kBold;
    if (tone == Tone::kQuiet) start += kDim;
    if (tone == Tone::kWarning) start += kYellow;
    if (tone == Tone::kAlarm) start += kRed;
    return start.empty() ? line : start + line + std::string(kEndColor);
  }

  const TopFrame& frame_;
  std::vector<std::string> lines_;
};

Tone ToneOf(const TopRow& row) {
  // The verdict is the whole job's; the ranks that have something to do with it stand out.
  if (row.verdict == "anomaly" && row.findings > 0) return Tone::kAlarm;
  if (!row.live) return Tone::kQuiet;
  return row.state == "stepped down" ? Tone::kWarning : Tone::kPlain;
}

std::string_view OrderName(TopOrder order) {
  switch (order) {
    case TopOrder::kRank:
      return "rank";
    case TopOrder::kOverhead:
      return "overhead";
    case TopOrder::kLoss:
      return "loss";
  }
  return "";
}

// How the lines of a screen are shared out.
struct Shares {
  size_t rows = 0;
  size_t news = 0;
  size_t blanks = 0;  // before the keys
  bool keys = false;
};

// The table gets what it needs; what happened gets a fifth of the screen at least.
Shares ShareLines(const TopPicture& picture, const TopFrame& frame) {
  const size_t news = std::min(picture.incidents.size() + picture.findings.size(), kNewsMax);
  if (frame.lines == 0) return {.rows = picture.rows.size(), .news = news};
  Shares shares{.keys = frame.lines >= kLinesForKeys};
  const size_t fixed =
      1 + (picture.rows.empty() ? 0 : 1) + (picture.note.empty() ? 0 : 1) + (shares.keys ? 1 : 0);
  const size_t left = frame.lines - std::min(frame.lines, fixed);
  shares.news = std::min({news, std::max<size_t>(frame.lines / 5, 1), left / 2});
  shares.rows = std::min(picture.rows.size(), left - shares.news);
  shares.news = std::min(news, left - shares.rows);
  shares.blanks = shares.keys ? left - shares.rows - shares.news : 0;
  return shares;
}

// The rows around the chosen one.
size_t FirstShown(size_t chosen, size_t shown, size_t count) {
  const size_t before = shown / 2;
  return std::min(chosen - std::min(chosen, before), count - shown);
}

std::string HeadLine(const TopPicture& picture, const TopFrame& frame, size_t first, size_t shown) {
  std::string head = "nanwatch  " + picture.host + "   " + Counted(picture.rows.size(), "run");
  if (shown < picture.rows.size() && shown > 0) {
    head += ", " + std::to_string(first + 1) + "-" + std::to_string(first + shown) + " shown";
  }
  head += ", by " + std::string(OrderName(frame.order));
  const size_t used = CellsOf(head) + CellsOf(picture.time);
  const size_t blanks = frame.columns > used + 3 ? frame.columns - used : 3;
  return head + std::string(blanks, ' ') + picture.time;
}

void AddNews(const TopPicture& picture, size_t count, Lines& lines) {
  for (const std::string& incident : picture.incidents) {
    if (count == 0) return;
    --count;
    lines.Add(Printable(incident), incident.starts_with("ANOMALY") ? Tone::kAlarm : Tone::kPlain);
  }
  for (const TopFinding& finding : picture.findings) {
    if (count == 0) return;
    --count;
    lines.Add(FindingAsText(finding), Tone::kPlain);
  }
}

// Text that came from a job, fit for a terminal.
TopRow Harmless(TopRow row) {
  for (std::string* text : {&row.job, &row.program, &row.state, &row.level, &row.verdict}) {
    *text = Printable(*text);
  }
  return row;
}

// For sorting by loss: what is not finite is above all numbers, what is not known below.
std::tuple<int, double> LossRank(const TopRow& row) {
  if (!row.loss.has_value()) return {0, 0};
  return std::isfinite(*row.loss) ? std::tuple(1, *row.loss) : std::tuple(2, 0.0);
}

}  // namespace

void SortRows(std::vector<TopRow>& rows, TopOrder order) {
  std::sort(rows.begin(), rows.end(), [](const TopRow& a, const TopRow& b) {
    return std::tie(a.job, a.rank, a.pid, a.run) < std::tie(b.job, b.rank, b.pid, b.run);
  });
  if (order == TopOrder::kOverhead) {
    std::stable_sort(rows.begin(), rows.end(), [](const TopRow& a, const TopRow& b) {
      return a.overhead_percent.value_or(-1) > b.overhead_percent.value_or(-1);
    });
  } else if (order == TopOrder::kLoss) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const TopRow& a, const TopRow& b) { return LossRank(a) > LossRank(b); });
  }
}

std::vector<std::string> DrawTop(const TopPicture& picture, const TopFrame& frame) {
  std::vector<TopRow> rows;
  for (const TopRow& row : picture.rows) rows.push_back(Harmless(row));
  const Shares shares = ShareLines(picture, frame);
  const size_t chosen = std::min(frame.chosen, rows.size() - std::min<size_t>(rows.size(), 1));
  const size_t first = FirstShown(chosen, shares.rows, rows.size());
  Lines lines(frame);
  lines.Add(HeadLine(picture, frame, first, shares.rows), Tone::kStrong);
  if (!picture.note.empty()) lines.Add(Printable(picture.note), Tone::kWarning);
  if (!rows.empty()) {
    // Without a limit the trend has its full width.
    const Table table = ChooseColumns(rows, frame.columns == 0 ? 10'000 : frame.columns);
    lines.Add(HeaderLine(table), Tone::kStrong);
    for (size_t i = first; i < first + shares.rows; ++i) {
      const bool marked = frame.lines > 0 && i == chosen;
      lines.Add(RowLine(table, rows[i], marked, frame.unicode), ToneOf(rows[i]), marked);
    }
  }
  // What is left over separates what happened from the table.
  if (shares.blanks > 0 && shares.news > 0) lines.Add("", Tone::kPlain);
  AddNews(picture, shares.news, lines);
  for (size_t i = shares.news > 0 ? 1 : 0; i < shares.blanks; ++i) lines.Add("", Tone::kPlain);
  if (shares.keys) lines.Add(kKeys, Tone::kQuiet);
  return lines.Take();
}

std::string FindingAsText(const TopFinding& finding) {
  std::string text = "rank " + std::to_string(finding.rank) + "  step " +
                     (finding.step < 0 ? "?" : std::to_string(finding.step));
  for (const std::string& word :
       {finding.phase, finding.layer, finding.op, finding.param, finding.finding_class,
        Counted(finding.count, "time"), finding.source}) {
    if (!word.empty()) text += "  " + word;
  }
  return Printable(text);
}

}  // namespace nanwatch
