// SPDX-License-Identifier: Apache-2.0
// The table of `top` as text, for every size of screen.
#include "tools/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "daemon/report/cell_text.h"
#include "tools/sparkline.h"

namespace nanwatch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

const double kNan = std::nan("");
constexpr double kInf = std::numeric_limits<double>::infinity();

TopRow Rank(int32_t rank) {
  return {.run = "run" + std::to_string(rank),
          .job = "job",
          .rank = rank,
          .world_size = 8,
          .pid = 4000 + rank,
          .program = "train.py",
          .state = "watching",
          .level = "full",
          .step = 117,
          .steps_per_second = 12.25,
          .loss = 0.03125 + rank,
          .gradient_norm = 1.5,
          .scale = 65536,
          .overhead_percent = 4.0 - rank,
          .findings = 1234,
          .verdict = "clean",
          .losses = {4, 3, 2, 1}};
}

TopPicture Ranks(int32_t count) {
  TopPicture picture = {.host = "gpu01", .time = "12:03:11 UTC"};
  for (int32_t rank = 0; rank < count; ++rank) picture.rows.push_back(Rank(rank));
  return picture;
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<int32_t> RanksOf(const std::vector<TopRow>& rows) {
  std::vector<int32_t> ranks;
  for (const TopRow& row : rows) ranks.push_back(row.rank);
  return ranks;
}

TEST(TopView, UpdatesHaveAColumnOnceParametersWereLookedAt) {
  TopPicture picture = Ranks(2);
  const TopFrame wide = {.lines = 10, .columns = 160};
  EXPECT_THAT(Joined(DrawTop(picture, wide)), Not(HasSubstr("UPDATE")));
  picture.rows[1].update_ratio = 0.00123;
  const std::string drawn = Joined(DrawTop(picture, wide));
  EXPECT_THAT(drawn, HasSubstr("GRADNORM     UPDATE"));
  EXPECT_THAT(drawn, HasSubstr("0.00123"));
}

TEST(TopView, AWideScreenShowsEverythingThatIsKnown) {
  TopPicture picture = Ranks(1);
  picture.incidents = {"ANOMALY  4af3c868 rank 0  began at step 46"};
  EXPECT_EQ(
      Joined(DrawTop(picture, {.lines = 10, .columns = 140, .unicode = true})),
      "nanwatch  gpu01   1 run, by rank" + std::string(96, ' ') +
          "12:03:11 UTC\n"
          "  RANK     PID  PROGRAM     STEP  STEP/S       LOSS   GRADNORM    SCALE  LEVEL  OVER%"
          "  FINDINGS  VERDICT   STATE     LOSSES\n"
          ">  0/8    4000  train.py     117    12.2    0.03125        1.5    65536  full     4.0"
          "     1,234  clean     watching  █▆▃▁\n"
          "\n"
          "ANOMALY  4af3c868 rank 0  began at step 46\n"
          "\n\n\n\n"
          "q quit   j/k move   sort by: r rank, o overhead, l loss\n");
}

TEST(TopView, NoLineIsWiderAndNoScreenHigherThanAsked) {
  TopPicture picture = Ranks(40);
  picture.note = std::string(300, 'n');
  picture.incidents = {std::string(300, 'i')};
  for (size_t columns = 1; columns <= 200; ++columns) {
    for (const size_t lines : {1, 2, 3, 5, 8, 24}) {
      const std::vector<std::string> drawn =
          DrawTop(picture, {.lines = lines, .columns = columns, .unicode = true});
      ASSERT_LE(drawn.size(), lines) << columns;
      for (const std::string& line : drawn) ASSERT_LE(CellsOf(line), columns) << line;
    }
  }
}

TEST(TopView, EightyColumnsKeepWhatDecides) {
  const std::string text = Joined(DrawTop(Ranks(2), {.lines = 24, .columns = 80}));
  for (const char* title : {"RANK", "PID", "STEP", "STEP/S", "LOSS", "FINDINGS", "VERDICT"}) {
    EXPECT_THAT(text, HasSubstr(title));
  }
  EXPECT_THAT(text, Not(HasSubstr("LOSSES")));
}

TEST(TopView, ALongNameDoesNotPushTheFiguresOffANarrowScreen) {
  TopPicture picture = Ranks(1);
  picture.rows[0].program = "pretrain_language_model.py";
  const std::string text = Joined(DrawTop(picture, {.lines = 24, .columns = 80}));
  EXPECT_THAT(text, HasSubstr("pretrain_..."));
  EXPECT_THAT(text, HasSubstr("OVER%"));
}

TEST(TopView, NarrowScreensDropColumnsByImportance) {
  const auto titles = [](size_t columns) {
    return DrawTop(Ranks(1), {.lines = 24, .columns = columns})[1];
  };
  EXPECT_EQ(titles(46), "  RANK   STEP      LOSS FINDINGS VERDICT");
  EXPECT_EQ(titles(24), "  RANK   STEP      LOSS");
  EXPECT_EQ(titles(6), "  RANK");
}

TEST(TopView, AStateThatIsNotTheUsualOneIsSeenOnANarrowScreenToo) {
  TopPicture picture = Ranks(2);
  EXPECT_THAT(Joined(DrawTop(picture, {.lines = 24, .columns = 60})), Not(HasSubstr("STATE")));
  picture.rows[1].state = "stepped down";
  EXPECT_THAT(Joined(DrawTop(picture, {.lines = 24, .columns = 60})), HasSubstr("stepped down"));
}

TEST(TopView, AColumnThatTellsNothingIsNotThere) {
  TopPicture picture = Ranks(2);
  for (TopRow& row : picture.rows) row.scale.reset();
  const std::string text = Joined(DrawTop(picture, {}));
  EXPECT_THAT(text, Not(HasSubstr("SCALE")));
  EXPECT_THAT(text, Not(HasSubstr("JOB")));
  picture.rows[1].job = "another";
  EXPECT_THAT(Joined(DrawTop(picture, {})), HasSubstr("JOB"));
}

TEST(TopView, WhatIsNotKnownIsADash) {
  TopPicture picture;
  picture.rows = {{.run = "a", .program = "p", .state = "starting"}};
  EXPECT_EQ(
      DrawTop(picture, {})[2],
      "     0       0  p              -       -          -          -  -          -         0  -  "
      "       starting");
}

TEST(TopView, LossesThatAreNotFiniteAreWords) {
  TopPicture picture = Ranks(3);
  picture.rows[0].loss = kNan;
  picture.rows[1].loss = kInf;
  picture.rows[2].loss = -kInf;
  const std::vector<std::string> lines = DrawTop(picture, {});
  EXPECT_THAT(lines[2], HasSubstr(" NaN "));
  EXPECT_THAT(lines[3], HasSubstr(" Inf "));
  EXPECT_THAT(lines[4], HasSubstr(" -Inf "));
}

TEST(TopView, WithoutColorThereIsNoEscapeSequence) {
  TopPicture picture = Ranks(2);
  picture.rows[0].verdict = "anomaly";
  picture.note = "no daemon";
  EXPECT_THAT(Joined(DrawTop(picture, {.lines = 24, .columns = 80})), Not(HasSubstr("\x1b")));
}

TEST(TopView, ColorShowsWhichRanksAnAnomalyIsAbout) {
  TopPicture picture = Ranks(2);
  for (TopRow& row : picture.rows) row.verdict = "anomaly";
  picture.rows[0].findings = 0;
  const std::vector<std::string> lines = DrawTop(picture, {.color = true});
  EXPECT_THAT(lines[2], Not(HasSubstr("\x1b[31m")));
  EXPECT_THAT(lines[3], StartsWith("\x1b[31m"));
  EXPECT_THAT(lines[3], ::testing::EndsWith("\x1b[0m"));
}

TEST(TopView, AnAsciiTerminalGetsAscii) {
  TopPicture picture = Ranks(1);
  picture.rows[0].program = "tr\u00e4in.py";
  const std::string text = Joined(DrawTop(picture, {.unicode = false}));
  EXPECT_THAT(text, HasSubstr("tr?in.py"));
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c > 0; })) << text;
}

TEST(TopView, LongNamesAreCutAndMoveNoColumn) {
  TopPicture picture = Ranks(2);
  picture.rows[0].program = std::string(200, 'x') + ".py";
  const std::vector<std::string> lines = DrawTop(picture, {.lines = 24, .columns = 160});
  EXPECT_THAT(lines[2], HasSubstr("xxx..."));
  EXPECT_EQ(lines[2].find(" 117 "), lines[3].find(" 117 "));
}

TEST(TopView, TextFromTheJobCannotSteerTheTerminal) {
  TopPicture picture = Ranks(1);
  picture.rows[0].program = "a\x1b[2Jb\n";
  picture.incidents = {"ANOMALY \x1b]0;title\x07"};
  picture.findings = {{.op = "aten::log\r"}};
  const std::string text = Joined(DrawTop(picture, {.unicode = true}));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, HasSubstr("a?[2Jb?"));
}

TEST(TopView, HundredsOfRanksScrollAroundTheChosenOne) {
  const TopPicture picture = Ranks(300);
  TopFrame frame = {.lines = 24, .columns = 100, .chosen = 150};
  std::vector<std::string> lines = DrawTop(picture, frame);
  EXPECT_THAT(lines, SizeIs(24));
  EXPECT_THAT(lines, Contains(StartsWith("> 150/8")));
  EXPECT_THAT(lines[0], HasSubstr("300 runs, 141-161 shown"));
  frame.chosen = 0;
  EXPECT_THAT(DrawTop(picture, frame)[2], StartsWith(">   0/8"));
  frame.chosen = 299;
  EXPECT_THAT(DrawTop(picture, frame)[22], StartsWith("> 299/8"));
  frame.chosen = 1'000'000;
  EXPECT_THAT(DrawTop(picture, frame)[22], StartsWith("> 299/8"));
}

TEST(TopView, WhatHappenedHasItsLinesBesideHundredsOfRanks) {
  TopPicture picture = Ranks(300);
  picture.incidents = {"ANOMALY  one"};
  picture.findings = {{.rank = 7, .step = 46, .op = "aten::log", .count = 3}};
  const std::string text = Joined(DrawTop(picture, {.lines = 24, .columns = 100}));
  EXPECT_THAT(text, HasSubstr("\nANOMALY  one\nrank 7  step 46  aten::log  3 times\n"));
}

TEST(TopView, WithoutARunTheNoteIsAllThereIs) {
  TopPicture picture = {.host = "gpu01", .time = "12:00:00 UTC", .note = "no job is running"};
  EXPECT_THAT(DrawTop(picture, {}),
              ElementsAre("nanwatch  gpu01   0 runs, by rank   12:00:00 UTC", "no job is running"));
}

TEST(TopView, RowsAreSortedByRankOverheadOrLoss) {
  std::vector<TopRow> rows = {Rank(2), Rank(0), Rank(3), Rank(1)};
  SortRows(rows, TopOrder::kRank);
  EXPECT_THAT(RanksOf(rows), ElementsAre(0, 1, 2, 3));
  rows[3].overhead_percent = 9;
  rows[0].overhead_percent.reset();
  SortRows(rows, TopOrder::kOverhead);
  EXPECT_THAT(RanksOf(rows), ElementsAre(3, 1, 2, 0));
  rows[1].loss = kNan;
  rows[2].loss = kInf;
  rows[0].loss.reset();
  SortRows(rows, TopOrder::kLoss);
  EXPECT_THAT(RanksOf(rows), ElementsAre(1, 2, 0, 3));
}

TEST(TopView, ASparklineScalesToWhatItShows) {
  EXPECT_EQ(Sparkline({9, 0, 1, 2, 3, 4, 5, 6, 7}, 8, true), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(Sparkline({0, 7}, 8, false), "_#");
  EXPECT_EQ(Sparkline({5, 5, 5}, 8, true), "▅▅▅");
  EXPECT_EQ(Sparkline({1, kNan, kInf, 2}, 8, true), "▁!!█");
  EXPECT_EQ(Sparkline({kNan}, 8, true), "!");
  EXPECT_EQ(Sparkline({-1.7e308, 1.7e308}, 8, true), "▁█");
  EXPECT_THAT(Sparkline({}, 8, true), IsEmpty());
}

TEST(TopView, AFindingIsOneLine) {
  EXPECT_EQ(FindingAsText({.run = "r",
                           .rank = 3,
                           .step = 117,
                           .phase = "forward",
                           .layer = "encoder.0",
                           .op = "aten::_softmax",
                           .finding_class = "inf_to_nan",
                           .source = "train.py:41 in forward",
                           .count = 12}),
            "rank 3  step 117  forward  encoder.0  aten::_softmax  inf_to_nan  12 times  "
            "train.py:41 in forward");
  EXPECT_THAT(FindingAsText({.count = 1}), HasSubstr("step ?  1 time"));
}

}  // namespace
}  // namespace nanwatch
