// SPDX-License-Identifier: Apache-2.0
// The verb `top`: the live runs, again and again.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/http/http_client.h"
#include "daemon/report/json_report.h"
#include "tools/exit_codes.h"
#include "tools/fleet_options.h"
#include "tools/help_layout.h"
#include "tools/run_words.h"
#include "tools/screen.h"
#include "tools/terminal.h"
#include "tools/top_fleet.h"
#include "tools/top_look.h"
#include "tools/top_view.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

using Json = nlohmann::ordered_json;
using Steady = std::chrono::steady_clock;

constexpr double kIntervalMinS = 0.1;
constexpr double kIntervalMaxS = 3600;
constexpr size_t kLossesInJson = 32;

constexpr char kTopHelp[] =
    "Keys: q quits; arrows, j and k move, with page up and down, g and G for the ends; r sorts by "
    "rank,\n"
    "  o by overhead, l by loss.\n"
    "STEP: optimizer steps so far. GRADNORM: 2-norm of all gradients. UPDATE: the share of the "
    "weights\n"
    "  that a step changes (median of the matrices in the last snapshot; 'nanwatch report "
    "--stats'). SCALE:\n"
    "  that of a GradScaler. OVER%: how much longer a step takes with checks than "
    "without\n"
    "  ('-': not measured yet). FINDINGS: op calls that wrote a NaN or Inf, harmless ones "
    "included.\n"
    "  VERDICT: the job's so far. Columns that do not fit are left out.\n"
    "Where stdin or stdout is not a terminal, the table is printed once.\n"
    "\n"
    "Examples:\n"
    "  nanwatch top\n"
    "  nanwatch top --once --json | jq '.runs[].loss'\n"
    "\n"
    "Exit status: 0; 1 when the database cannot be read (live runs are shown anyway).\n"
    "Environment: NANWATCH_DIR, NANWATCH_STATE_DIR; NO_COLOR.";

struct TopOptions {
  double interval_s = 1;
  bool once = false;
  bool json = false;
  HttpClientOptions fleet;
};

// ---- once

Json NumberOrNull(std::optional<double> value) {
  return value.has_value() ? JsonNumber(*value) : Json();
}

Json RowAsJson(const TopRow& row) {
  Json losses = Json::array();
  const size_t skipped = row.losses.size() - std::min(row.losses.size(), kLossesInJson);
  for (size_t i = skipped; i < row.losses.size(); ++i) losses.push_back(JsonNumber(row.losses[i]));
  return {{"id", row.run},
          {"job", row.job},
          {"rank", row.rank},
          {"world_size", row.world_size},
          {"pid", row.pid},
          {"host", row.host},
          {"program", row.program},
          {"level", row.level},
          {"state", row.state},
          {"step", row.step.value_or(-1)},
          {"steps_per_second", NumberOrNull(row.steps_per_second)},
          {"loss", NumberOrNull(row.loss)},
          {"losses", losses},
          {"gradient_norm", NumberOrNull(row.gradient_norm)},
          {"update_ratio", NumberOrNull(row.update_ratio)},
          {"scale", NumberOrNull(row.scale)},
          {"overhead_percent", NumberOrNull(row.overhead_percent)},
          {"overhead_interval", row.overhead_percent ? Json(row.overhead_interval) : Json()},
          {"findings", row.findings},
          {"verdict", row.verdict.empty() ? Json() : Json(row.verdict)}};
}

Json FindingAsJson(const TopFinding& finding) {
  return {{"run", finding.run},     {"rank", finding.rank},           {"step", finding.step},
          {"phase", finding.phase}, {"layer", finding.layer},         {"op", finding.op},
          {"param", finding.param}, {"class", finding.finding_class}, {"source", finding.source},
          {"count", finding.count}};
}

std::string AsJson(const TopPicture& picture) {
  Json document = {{"schema", "nanwatch.top/1"},
                   {"host", picture.host},
                   {"at", FormatUtc(SystemClock().real_ns())},
                   {"runs", Json::array()},
                   {"newest", Json::array()}};
  for (const TopRow& row : picture.rows) document["runs"].push_back(RowAsJson(row));
  for (const TopFinding& finding : picture.findings) {
    document["newest"].push_back(FindingAsJson(finding));
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string AsText(const TopPicture& picture) {
  const bool to_terminal = isatty(STDOUT_FILENO) == 1;
  std::string text;
  for (const std::string& line :
       DrawTop(picture, {.columns = to_terminal ? SizeOfTerminal(STDOUT_FILENO).columns : 0,
                        .color = WantsColor(STDOUT_FILENO),
                        .unicode = WantsUnicode()})) {
    text += line + "\n";
  }
  return text;
}

std::unique_ptr<TopSource> SourceFor(const HttpClientOptions& fleet) {
  if (AsksFleet(fleet)) return std::make_unique<TopFleet>(fleet);
  return std::make_unique<TopLook>();
}

int PrintOnce(TopSource& look, bool as_json) {
  TopPicture picture = look.Take();
  SortRows(picture.rows, TopOrder::kRank);
  const int printed = PrintAndExit(as_json ? AsJson(picture) : AsText(picture), kExitOk);
  const Status database = look.DatabaseStatus();
  if (database.ok()) return printed;
  Say(database.message());
  return kExitFailed;
}

// ---- again and again

// What the person at the keys has chosen. A run stays chosen when the order changes around it.
class Choice {
 public:
  [[nodiscard]] TopOrder order() const { return order_; }

  // False: they want to quit.
  bool Apply(const KeyPress& press, size_t page, std::vector<TopRow>& rows) {
    if (press.key == Key::kCharacter) return ApplyCharacter(press.character, rows);
    if (press.key == Key::kUp) Move(-1, rows);
    if (press.key == Key::kDown) Move(1, rows);
    if (press.key == Key::kPageUp) Move(-static_cast<ptrdiff_t>(page), rows);
    if (press.key == Key::kPageDown) Move(static_cast<ptrdiff_t>(page), rows);
    if (press.key == Key::kHome) MoveTo(0, rows);
    if (press.key == Key::kEnd) MoveTo(rows.size(), rows);
    return true;
  }

  // The index of the chosen run; where it is gone, of the one in its place.
  size_t Find(const std::vector<TopRow>& rows) {
    const auto found = std::find_if(rows.begin(), rows.end(),
                                    [this](const TopRow& row) { return row.run == run_; });
    if (found == rows.end()) {
      MoveTo(index_, rows);
    } else {
      index_ = static_cast<size_t>(found - rows.begin());
    }
    return index_;
  }

 private:
  bool ApplyCharacter(char character, std::vector<TopRow>& rows) {
    switch (character) {
      case 'q':
      case 'Q':
        return false;
      case 'j':
        Move(1, rows);
        break;
      case 'k':
        Move(-1, rows);
        break;
      case 'g':
        MoveTo(0, rows);
        break;
      case 'G':
        MoveTo(rows.size(), rows);
        break;
      case 'r':
        Sort(TopOrder::kRank, rows);
        break;
      case 'o':
        Sort(TopOrder::kOverhead, rows);
        break;
      case 'l':
        Sort(TopOrder::kLoss, rows);
        break;
      default:
        break;
    }
    return true;
  }

  void Sort(TopOrder order, std::vector<TopRow>& rows) {
    order_ = order;
    SortRows(rows, order);
  }

  void Move(ptrdiff_t by, const std::vector<TopRow>& rows) {
    const auto from = static_cast<ptrdiff_t>(Find(rows));
    MoveTo(static_cast<size_t>(std::max<ptrdiff_t>(from + by, 0)), rows);
  }

  void MoveTo(size_t index, const std::vector<TopRow>& rows) {
    index_ = rows.empty() ? 0 : std::min(index, rows.size() - 1);
    run_ = rows.empty() ? "" : rows[index_].run;
  }

  TopOrder order_ = TopOrder::kRank;
  std::string run_;
  size_t index_ = 0;
};

class LiveView {
 public:
  LiveView(TopSource& look, std::chrono::milliseconds interval)
      : interval_(interval), look_(look) {}

  // Until they quit or the terminal is gone.
  void Run() {
    Look();
    while (Draw()) {
      const Screen::Event event = screen_.Wait(UntilNextLook());
      if (event == Screen::Event::kGone) return;
      if (event == Screen::Event::kKey &&
          !choice_.Apply(screen_.key(), screen_.size().lines / 2, picture_.rows)) {
        return;
      }
      if (Steady::now() >= next_look_) Look();
    }
  }

 private:
  void Look() {
    picture_ = look_.Take();
    SortRows(picture_.rows, choice_.order());
    if (const Status database = look_.DatabaseStatus(); !database.ok()) {
      picture_.note = database.message();
    }
    next_look_ = Steady::now() + interval_;
  }

  bool Draw() {
    const ScreenSize size = screen_.size();
    return screen_.Show(DrawTop(picture_, {.lines = size.lines,
                                           .columns = size.columns,
                                           .color = color_,
                                           .unicode = unicode_,
                                           .order = choice_.order(),
                                           .chosen = choice_.Find(picture_.rows)}));
  }

  std::chrono::milliseconds UntilNextLook() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_look_ - Steady::now());
    return std::max(left, std::chrono::milliseconds(0));
  }

  const std::chrono::milliseconds interval_;
  TopSource& look_;
  const bool color_ = WantsColor(STDOUT_FILENO);
  const bool unicode_ = WantsUnicode();
  Screen screen_;
  Choice choice_;
  TopPicture picture_;
  Steady::time_point next_look_;
};

int Top(const TopOptions& options) {
  if (!(options.interval_s >= kIntervalMinS && options.interval_s <= kIntervalMaxS)) {
    Say("--interval takes seconds from 0.1 to 3600");
    return kExitUsage;
  }
  if (AsksFleet(options.fleet) && !MayAskFleet(options.fleet)) return kExitUsage;
  const std::unique_ptr<TopSource> source = SourceFor(options.fleet);
  if (options.once || options.json || !Screen::IsPossible())
    return PrintOnce(*source, options.json);
  LiveView(*source, std::chrono::milliseconds(std::lround(options.interval_s * 1000))).Run();
  return kExitOk;
}

}  // namespace

void AddTopVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb =
      app.add_subcommand("top", "Watch the live runs: steps, loss, gradients, findings, overhead.");
  SetHelp(*verb, "nanwatch top [OPTIONS]", kTopHelp);
  auto options = std::make_shared<TopOptions>();
  verb->add_option("--interval", options->interval_s, "How often to refresh (default: 1)")
      ->type_name("SECONDS");
  verb->add_flag("--once", options->once, "Print the table once");
  verb->add_flag("--json", options->json, "Print it once, as a JSON document (nanwatch.top/1)");
  AddFleetOptions(*verb, options->fleet);
  verb->callback([options, &call] { call.chosen = [options] { return Top(*options); }; });
}

}  // namespace nanwatch
