// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/text_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "daemon/explain/explain.h"
#include "tests/daemon/correlate/run_builder.h"
#include "tests/daemon/report/masked_row.h"

namespace nanwatch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Report(const RunFacts& facts) { return TextReport(Diagnose({facts}), TextOptions()); }

// All words of a report on one line, with one space between two.
std::string Unwrapped(const std::string& report) {
  std::istringstream words(report);
  std::string text;
  for (std::string word; words >> word;) text += (text.empty() ? "" : " ") + word;
  return text;
}

void ExpectFitsTheScreen(const std::string& report) {
  std::istringstream lines(report);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_LE(line.size(), 100u) << line;
    EXPECT_FALSE(line.ends_with(' ')) << "'" << line << "'";
  }
  EXPECT_LE(count, 24) << report;
}

TEST(TextReportRan, SaysWhereWhenAndAsWhat) {
  Verdict verdict;
  verdict.set_verdict("clean");
  RunInfo& run = *verdict.mutable_run();
  run.set_host("node7");
  run.set_started_at("2026-11-23T21:40:02.123Z");
  run.set_ended_at("2026-11-23T22:01:10.000Z");
  for (const char* word : {"python", "train.py", "--epochs", "3"}) run.add_command(word);
  *verdict.add_runs() = run;
  EXPECT_THAT(Unwrapped(TextReport(verdict, TextOptions())),
              HasSubstr("ran on node7, 2026-11-23 21:40:02 to 22:01:10 UTC: python train.py "
                        "--epochs 3"));
  EXPECT_THAT(Unwrapped(TextReport(
                  [&] {
                    Verdict same = verdict;
                    same.mutable_run()->set_directory("/home/me/job");
                    return same;
                  }(),
                  TextOptions())),
              HasSubstr("python train.py --epochs 3, in /home/me/job"));
  run.set_ended_at("2026-11-24T00:01:10.000Z");
  EXPECT_THAT(Unwrapped(TextReport(verdict, TextOptions())),
              HasSubstr("2026-11-23 21:40:02 to 2026-11-24 00:01:10 UTC"));
  verdict.clear_run();
  EXPECT_THAT(TextReport(verdict, TextOptions()), Not(HasSubstr("\nran")));
}

// At level full nothing more is seen by running it again.
TEST(TextReportUnknown, AdvisesALevelOnlyWhereItWasLower) {
  Verdict verdict;
  verdict.set_verdict("unknown");
  verdict.set_unknown_because("not_followed");
  RunInfo& run = *verdict.mutable_run();
  run.set_level("canary");
  *verdict.add_runs() = run;
  EXPECT_THAT(Unwrapped(TextReport(verdict, TextOptions())), HasSubstr("--level full"));
  run.set_level("full");
  const std::string report = Unwrapped(TextReport(verdict, TextOptions()));
  EXPECT_THAT(report, Not(HasSubstr("--level full")));
  EXPECT_THAT(report, HasSubstr("check the result of the job"));
}

RunFacts MaskedRow() {
  RunBuilder run;
  TellMaskedRow(run, "encoder.layers.1.self_attn");
  RunFacts facts = run.Build();
  facts.mutable_state()->mutable_clocks()->set_optimizer_steps(0, 118);
  facts.mutable_state()->set_tensors_checked(61204);
  facts.mutable_state()->set_overhead_percent(1.4);
  facts.mutable_state()->set_overhead_low(0.8);
  facts.mutable_state()->set_overhead_high(1.9);
  facts.mutable_run()->set_nonce(0x7f3a00112233aabbull);
  for (int reason = 0; reason < 5; ++reason)
    facts.mutable_state()->add_unchecked(reason == 0 ? 0 : 9);
  return facts;
}

TEST(TextReport, HasTheKernelsOfTheOriginBelowItsOp) {
  RunFacts facts = MaskedRow();
  Record& record = *facts.add_records();
  record.set_ticket(99);
  record.mutable_kernels()->set_value(2);
  KernelsFact::Kernel& kernel = *record.mutable_kernels()->add_kernels();
  kernel.set_name("_ZN2at6native12_GLOBAL__N_120softmax_warp_forwardIfEEvPT_");
  kernel.set_count(2);
  kernel.set_nanoseconds(31'500);
  const std::string report = Report(facts);
  EXPECT_THAT(report, HasSubstr("\nkernels   at::native::softmax_warp_forward 2 x, 31.5 us\n"));
  EXPECT_LT(report.find("aten::_softmax"), report.find("kernels"));
  EXPECT_LT(report.find("kernels"), report.find("NaN 1,024"));
  ExpectFitsTheScreen(report);
  EXPECT_THAT(Report(MaskedRow()), Not(HasSubstr("kernels")));
  // What is not shown, or not known, is said.
  Record& last = *facts.mutable_records(facts.records_size() - 1);
  last.mutable_kernels()->set_left_out(3);
  last.mutable_kernels()->set_lost(1200);
  EXPECT_THAT(Report(facts), HasSubstr("31.5 us; 3 more (1,200 kernel records were lost)\n"));
}

TEST(TextReport, HasTheSamplesThatALoaderFetched) {
  const auto report = [](std::initializer_list<const char*> indices, uint32_t of_batch,
                         bool whole_batch) {
    RunFacts facts = MaskedRow();
    for (Record& record : *facts.mutable_records()) {
      if (record.ticket() != 2) continue;
      LoaderSamples& samples = *record.mutable_value()->mutable_samples();
      for (const char* index : indices) samples.add_indices(index);
      samples.set_of_batch(of_batch);
      samples.set_whole_batch(whole_batch);
    }
    const std::string text = Report(facts);
    ExpectFitsTheScreen(text);
    return text;
  };
  EXPECT_THAT(report({"17"}, 8, false),
              HasSubstr("\nsample    dataset index 17 was being fetched, for a batch of 8\n"));
  EXPECT_THAT(report({"'cat'"}, 0, false),
              HasSubstr("\nsample    dataset index 'cat' was being fetched\n"));
  EXPECT_THAT(report({"3", "17", "40"}, 3, true),
              HasSubstr("\nsample    a batch of 3 was being fetched: dataset indices 3, 17, 40\n"));
  EXPECT_THAT(
      report({"1", "2", "3", "4", "5", "6", "7", "8", "9"}, 64, true),
      HasSubstr("a batch of 64 was being fetched: dataset indices 1, 2, 3, 4, 5, 6, 7, 8, ...\n"));
  EXPECT_THAT(report({"5", "9"}, 8, false),
              HasSubstr("\nsample    dataset indices 5, 9 were being fetched, for a batch of 8\n"));
  EXPECT_THAT(report({"5"}, 1, true), HasSubstr("\nsample    dataset index 5 was being fetched\n"));
  EXPECT_THAT(report({"5"}, 2, true),
              HasSubstr("\nsample    a batch of 2 was being fetched: dataset indices 5, ...\n"));
  EXPECT_THAT(Report(MaskedRow()), Not(HasSubstr("sample")));
}

TEST(TextReport, ANewerTrainingHasItsAnswerAboveThatOfTheOneBefore) {
  Verdict verdict = Diagnose({MaskedRow()});
  Finding& origin = *verdict.mutable_incidents(0)->mutable_origin();
  origin.set_training(1);
  const auto add = [&](const char* outcome, int64_t steps, const char* cell, const char* last) {
    TrainingSummary& training = *verdict.add_trainings();
    training.set_ordinal(verdict.trainings_size());
    training.set_run(verdict.run().id());
    training.set_verdict(outcome);
    training.set_steps(steps);
    training.set_cell(cell);
    training.set_last_cell(last);
  };
  add("anomaly", 120, "In[7]", "");
  EXPECT_THAT(TextReport(verdict, TextOptions()), StartsWith("ANOMALY"));
  add("clean", 40, "In[9]", "In[10]");
  const std::string report = TextReport(verdict, TextOptions());
  EXPECT_THAT(report,
              StartsWith("CLEAN     training 2 of 2 (In[9] to In[10], 40 steps): no non-finite "
                         "value\n\nANOMALY "));
  EXPECT_THAT(Unwrapped(report), HasSubstr("at step 117 in training 1 (In[7])"));
  EXPECT_THAT(Unwrapped(report), HasSubstr("training 1 of 2 (In[7], 120 steps): anomaly: NaN"));
  verdict.mutable_trainings(1)->set_verdict("unknown");
  EXPECT_THAT(TextReport(verdict, TextOptions()),
              StartsWith("UNKNOWN   training 2 of 2 (In[9] to In[10], 40 steps): not all"));
}

TEST(TextReport, SaysInWhichTrainingOfAProgramAStepIs) {
  Verdict verdict = Diagnose({MaskedRow()});
  Finding& origin = *verdict.mutable_incidents(0)->mutable_origin();
  const auto report = [&](int training) {
    origin.set_training(training);
    return Unwrapped(TextReport(verdict, TextOptions()));
  };
  EXPECT_THAT(report(0), Not(HasSubstr("in this process")));
  EXPECT_THAT(report(1), HasSubstr("at step 117 of the first training in this process origin"));
  EXPECT_THAT(report(2), HasSubstr("at step 117 of the second training in this process origin"));
  EXPECT_THAT(report(6), HasSubstr("of the 6th training"));
  EXPECT_THAT(report(13), HasSubstr("of the 13th training"));
  EXPECT_THAT(report(32), HasSubstr("of the 32nd training"));
}

TEST(TextReport, SaysWhyNoKernelIsNamed) {
  const auto report = [](uint64_t buffers, uint64_t kernels, uint64_t in_graphs, uint64_t launches,
                         uint64_t matched, bool yielded) {
    RunFacts facts = MaskedRow();
    Record& record = *facts.add_records();
    record.set_ticket(99);
    record.mutable_kernels()->set_value(2);
    KernelRecords& records = *record.mutable_kernels()->mutable_records();
    records.set_buffers(buffers);
    records.set_kernels(kernels);
    records.set_kernels_in_graphs(in_graphs);
    records.set_launches(launches);
    records.set_matched(matched);
    records.set_yielded(yielded);
    return Unwrapped(Report(facts));
  };
  EXPECT_THAT(report(0, 0, 0, 0, 0, false), HasSubstr("none named: CUPTI delivered no records"));
  EXPECT_THAT(report(3, 0, 0, 9, 0, false),
              HasSubstr("none named: CUPTI recorded none of the job's kernels"));
  EXPECT_THAT(report(3, 0, 1200, 0, 0, false),
              HasSubstr("none named: the 1,200 kernels that CUPTI recorded ran in CUDA graphs"));
  EXPECT_THAT(report(3, 1234, 0, 900, 0, false),
              HasSubstr("CUPTI recorded 1,234 kernels, but not which ops launched them"));
  EXPECT_THAT(report(3, 1234, 0, 900, 800, false),
              HasSubstr("CUPTI recorded 1,234 kernels and 900 launches by ops, but none of this "
                        "op"));
  EXPECT_THAT(report(3, 1234, 0, 900, 800, true), HasSubstr("a profiler took over CUPTI"));
}

TEST(TextReport, AnomalyIsToldOnOneScreenFromOriginToRemedy) {
  const std::string report = Report(MaskedRow());
  EXPECT_EQ(
      report,
      R"(ANOMALY   train.py, run 7f3a0011, torch 2.11.0, cpu: NaN reached the parameters at step 117

origin    step 117, forward, encoder.layers.1.self_attn (MultiheadAttention)
          aten::_softmax, Inf became NaN                          model.py:88 in forward
input     float32 [8, 4, 32, 32]   -Inf 11,264 of 32,768   finite -3.125 .. 2.9
output    float32 [8, 4, 32, 32]   NaN 1,024 of 32,768   finite 0 .. 1   first at [3, 0, 0, 0]
then      aten::bmm, encoder.layers.1.self_attn > ... > aten::nll_loss_forward: loss NaN > gradients
          of 36 parameters > 36 parameters
why       every key of a row is masked: softmax over a row of only -Inf is 0/0 (first such row at
          [3, 0, 0, 0]; 11,264 of 32,768 scores are -Inf)
do        keep at least one key of each row unmasked, drop empty sequences when you build batches,
          or mask the output instead
watched   118 steps, 61,204 tensors, 0 records lost, 4 kinds of tensor unchecked
          (nanwatch report 7f3a0011 --coverage); overhead 1.4 % (0.8 .. 1.9)
)");
  ExpectFitsTheScreen(report);
}

RunFacts LogInTheLoss() {
  RunBuilder run;
  run.Value(1).Produce("aten::log").At("prior", "Prior").NegInf();
  run.Pass(2).Root(1);
  return run.Build();
}

TEST(TextReport, OpsBeforeTheOriginTellWhatWasGrowing) {
  RunFacts facts = MaskedRow();
  Record& record = *facts.add_records();
  record.set_ticket(100);
  TrailFact& trail = *record.mutable_trail();
  trail.set_value(2);
  for (const char* name : {"aten::_softmax", "encoder.layers.1.self_attn", "aten::bmm"}) {
    trail.add_names(name);
  }
  for (const uint32_t iteration : {115, 116, 117}) {
    TrailFact::Op& op = *trail.add_ops();
    op.set_op(iteration == 117 ? 2 : 0);
    op.set_layer(1);
    op.set_iteration(iteration);
    op.set_largest(iteration == 117 ? 52'416 : iteration / 1000.0);
    op.set_known(iteration == 116 ? wire::TrailOp::kAtLeast : wire::TrailOp::kExact);
    op.set_phase(static_cast<uint32_t>(wire::Phase::kForward));
    op.set_element_type(static_cast<uint32_t>(wire::ElementType::kFloat16));
  }
  const std::string report = Report(facts);
  EXPECT_THAT(report,
              HasSubstr("before    aten::_softmax, encoder.layers.1.self_attn: at least 0.116 "
                        "(1 step earlier)\n"
                        "          aten::bmm, encoder.layers.1.self_attn: 5.242e+04, 80 % of "
                        "the largest float16\n"
                        "earlier   this op's largest results in earlier steps: 0.115, at "
                        "least 0.116\n"
                        "then      aten::bmm"));
  EXPECT_LT(report.find("\norigin "), report.find("\nbefore "));
  for (TrailFact::Op& op : *record.mutable_trail()->mutable_ops()) op.set_largest(1.5);
  EXPECT_EQ(Report(facts), Report(MaskedRow())) << "nothing grew";
}

TEST(TextReport, NamesTheWholePathOfTheFileOnce) {
  const Verdict verdict = Diagnose({MaskedRow()});
  const std::string report = TextReport(verdict, {.source_path = "/home/me/job/model.py"});
  EXPECT_THAT(report, HasSubstr("model.py:88 in forward\nfile      /home/me/job/model.py\n"));
  EXPECT_EQ(report.find("/home/me"), report.rfind("/home/me"));
  EXPECT_THAT(TextReport(verdict, TextOptions()), Not(HasSubstr("\nfile ")));
}

TEST(TextReport, SaysOnHowManyOtherRanksItWasTheSame) {
  std::vector<RunFacts> ranks;
  for (int rank = 0; rank < 8; ++rank) {
    RunFacts& facts = ranks.emplace_back(MaskedRow());
    facts.mutable_run()->set_nonce(facts.run().nonce() + static_cast<uint64_t>(rank));
    facts.mutable_run()->set_rank(rank);
    facts.mutable_run()->set_world_size(8);
  }
  EXPECT_THAT(TextReport(Diagnose({ranks[0]}), TextOptions()), Not(HasSubstr("\nranks ")));
  Verdict verdict = Diagnose(ranks);
  EXPECT_THAT(TextReport(verdict, TextOptions()),
              HasSubstr("\nranks     0; the same on 7 others: 1, 2, 3, 4, 5, 6, 7\n"));
  for (int rank = 8; rank < 64; ++rank) verdict.mutable_incidents(0)->add_ranks(rank);
  EXPECT_THAT(TextReport(verdict, TextOptions()),
              HasSubstr("\nranks     0; the same on 63 others\n"));
}

TEST(TextReport, FitsFromEightyColumnsToAHundredAndTwenty) {
  Verdict verdict = Diagnose({MaskedRow()});
  for (const int width : {80, 100, 120}) {
    size_t longest = 0;
    std::istringstream lines(TextReport(verdict, {.width_columns = width}));
    for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
    EXPECT_LE(longest, static_cast<size_t>(width));
    EXPECT_GT(longest, static_cast<size_t>(width) - 12) << "room is used";
  }
}

TEST(TextReport, WhatARuleExcusesIsToldWithTheRuleAndItsReach) {
  RunFacts facts = LogInTheLoss();
  facts.mutable_run()->set_ignore("op=aten::log layer=prior");
  const std::string report = Report(facts);
  EXPECT_THAT(report, StartsWith("EXPECTED"));
  EXPECT_THAT(report, HasSubstr("non-finite values, expected by your rules"));
  EXPECT_THAT(Unwrapped(report), HasSubstr("step 0; it reached the loss; your rule "
                                           "'op=aten::log layer=prior' expects this"));
  EXPECT_THAT(report, Not(HasSubstr("none of them reached the loss")));
  ExpectFitsTheScreen(report);
}

TEST(TextReport, WhatARuleExcusesIsToldBesideWhatItDoesNot) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").At("prior", "Prior").NegInf();
  run.Pass(2).Root(1);
  run.Value(11).Produce("aten::sqrt").At("fc").Nan();
  run.Pass(12).Root(11);
  RunFacts facts = run.Build();
  facts.mutable_run()->set_ignore("op=aten::log");
  const std::string report = Report(facts);
  EXPECT_THAT(report, StartsWith("ANOMALY"));
  EXPECT_THAT(report, HasSubstr("aten::sqrt, made NaN"));
  EXPECT_THAT(report, HasSubstr("expected  aten::log"));
  ExpectFitsTheScreen(report);
}

TEST(TextReport, RulesThatAreNotAppliedAreNamed) {
  RunFacts facts = LogInTheLoss();
  facts.mutable_run()->set_ignore("opp=aten::log");
  EXPECT_THAT(Report(facts),
              HasSubstr("rules     the rule 'opp=aten::log' is not applied: there is no"));
}

TEST(TextReport, ColourIsUsedOnlyWhenAskedFor) {
  const Verdict verdict = Diagnose({MaskedRow()});
  EXPECT_THAT(TextReport(verdict, TextOptions()), Not(HasSubstr("\033")));
  EXPECT_THAT(TextReport(verdict, {.color = true}), StartsWith("\033[1;31mANOMALY\033[0m"));
}

TEST(TextReport, TerminalIsSafeFromNamesOfTheJob) {
  RunBuilder run;
  run.Value(1)
      .Produce("aten::log\033[2J")
      .At("a\nb\x07", "T\xff")
      .Line("x.py:1 \033]0;evil\007")
      .Nan();
  run.Pass(2).Root(1);
  RunFacts facts = run.Build();
  facts.mutable_run()->set_program("\033[31mtrain.py");
  const std::string report = Report(facts);
  for (const char byte : report) {
    EXPECT_TRUE(byte == '\n' || static_cast<unsigned char>(byte) >= 0x20);
  }
  EXPECT_THAT(report, HasSubstr("?[31mtrain.py"));
}

TEST(TextReport, DeepLayersLongNamesAndManyIncidentsStillFitTheScreen) {
  RunBuilder run;
  std::string deep = "model";
  for (int i = 0; i < 40; ++i) deep += ".layers." + std::to_string(i);
  for (uint64_t i = 0; i < 20; ++i) {
    run.Value(i * 10 + 1)
        .Produce("aten::log")
        .At(deep + std::to_string(i), "Block")
        .Nan()
        .Line(std::string(70, 'x') + ".py:88 in forward")
        .Input(Tensor({8, 4, 32, 32, 8, 4, 32, 32}, "self"))
        .Input(Tensor({8, 4}, "other"))
        .Input(Tensor({8, 4}, "third"));
    run.Pass(i * 10 + 2).Root(i * 10 + 1).Leaf(deep + ".weight", i * 10 + 1);
    run.Value(i * 10 + 3)
        .Propagate("aten::addcdiv_")
        .Optimizer(deep + ".weight")
        .From(i * 10 + 1)
        .Nan();
  }
  ExpectFitsTheScreen(Report(run.Build()));
}

TEST(TextReport, InputDataNamesTheBatch) {
  RunBuilder run;
  run.Value(1)
      .External("aten::addmm")
      .At("inp", "Linear")
      .Step(4)
      .FromOutside(wire::Target::kInputData, "x")
      .Nan();
  run.Pass(2).Root(1);
  const std::string report = Report(run.Build());
  EXPECT_THAT(report, HasSubstr("origin    step 4, the input batch, into inp (Linear)\n"));
  EXPECT_THAT(report, HasSubstr("already in the batch; first used by aten::addmm"));
}

TEST(TextReport, ParameterNamesItself) {
  RunBuilder run;
  run.Value(1)
      .External("aten::addmm")
      .At("layers.0", "ScaledLinear")
      .FromOutside(wire::Target::kParameter, "layers.0.bias")
      .Nan();
  run.Pass(2).Root(1);
  run.Ended(OptimizerClocks({5}));
  EXPECT_THAT(Report(run.Build()), HasSubstr("step 0, parameter layers.0.bias (ScaledLinear)\n"
                                             "          already bad; first read by aten::addmm\n"));
}

// Level auto reads parameters when steps that it left out are over.
TEST(TextReport, ParameterThatWasReadLaterWentBadByThen) {
  RunBuilder run;
  run.Step(8);
  run.Value(1)
      .External("torch.nn.Module.__call__")
      .At("fc", "Linear")
      .FromOutside(wire::Target::kParameter, "fc.weight")
      .WroteParameter("fc.weight")
      .Flag(wire::ValueRecord::kUnseenLevel)
      .Nan();
  run.Ended(OptimizerClocks({9}));
  const std::string report = Unwrapped(Report(run.Build()));
  EXPECT_THAT(report, HasSubstr("NaN reached the parameters by step 8"));
  EXPECT_THAT(report, HasSubstr("origin by step 8, parameter fc.weight"));
  EXPECT_THAT(report, Not(HasSubstr("scaler")));
}

TEST(TextReport, UpdateNamesItsParameter) {
  RunBuilder run;
  run.Value(1).Produce("aten::addcdiv_").Optimizer("gate.weight").Step(3).Nan();
  run.Update(2).Parameter("gate.weight", 1);
  const std::string report = Report(run.Build());
  EXPECT_THAT(report, HasSubstr("step 3, optimizer, parameter gate.weight\n"));
  EXPECT_THAT(report, HasSubstr("aten::addcdiv_, made NaN from finite values"));
}

TEST(TextReport, RankIsNamedInADistributedJob) {
  RunBuilder run;
  run.Rank(1, 8).Value(1).Produce("aten::div").Nan();
  run.Pass(2).Root(1);
  EXPECT_THAT(Report(run.Build()), HasSubstr("rank 1 of 8"));
}

TEST(TextReport, InexactOriginSaysSo) {
  RunBuilder run;
  run.Value(2).Propagate("aten::addmm").At("fc").FromUnknown().Nan();
  run.Pass(3).Root(2);
  EXPECT_THAT(Report(run.Build()),
              HasSubstr("aten::addmm, or an op before it that was not observed"));
}

TEST(TextReport, NanThatAnOpHasReadAndNobodyMadeIsSaidToBeWrittenByWhatIsNotChecked) {
  RunBuilder run;
  RecordTensor read = Tensor({3, 4});
  read.set_nan(1);
  run.Value(1).Scalar("aten::masked_fill").PosInf(1, 12);
  run.Value(2).Propagate("aten::index_select").From(1, wire::kHasNan).Input(read).Nan(1, 12);
  run.Pass(3).Root(2);
  const std::string report = Unwrapped(Report(run.Build()));
  EXPECT_THAT(report, HasSubstr("the NaN was in this op's input already"));
  EXPECT_THAT(report, HasSubstr("do find what else writes this tensor"));
}

TEST(TextReport, UnknownOriginOfABadParameterIsNotDressedUp) {
  RunBuilder run;
  run.Update(1).UnknownParameter("fc.weight");
  const std::string report = Report(run.Build());
  EXPECT_THAT(report,
              HasSubstr("parameter fc.weight\n          the op that made it was not observed"));
  EXPECT_THAT(report, HasSubstr("--level full"));
}

TEST(TextReport, WhatBelongsTogetherOfATensorStaysOnOneLine) {
  const Verdict verdict = Diagnose({MaskedRow()});
  for (int width = 44; width <= 120; ++width) {
    const std::string report = TextReport(verdict, {.width_columns = width});
    EXPECT_THAT(report, HasSubstr("first at [3, 0, 0, 0]\n")) << width;
    EXPECT_THAT(report, HasSubstr("finite -3.125 .. 2.9\n")) << width;
    EXPECT_THAT(report, Not(HasSubstr(" \n"))) << width;
  }
}

TEST(TextReport, CleanSaysWhatWasWatched) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_state()->mutable_clocks()->set_optimizer_steps(0, 200);
  EXPECT_EQ(Report(facts),
            "CLEAN     train.py, run 00000000, torch 2.11.0, cpu: no non-finite value\n\n"
            "watched   200 steps, 900 tensors, 0 records lost; overhead not measured\n");
}

TEST(TextReport, OfAJobThatStillRunsSaysSo) {
  Verdict verdict = Diagnose({RunBuilder().Build()});
  verdict.set_verdict("clean");
  verdict.mutable_run()->set_host("node7");
  verdict.mutable_run()->set_started_at("2026-11-23T21:40:02.123Z");
  const std::string live = TextReport(verdict, {.live = true});
  EXPECT_THAT(live, HasSubstr("no non-finite value so far\n"));
  EXPECT_THAT(live, HasSubstr("\nruns      on node7, since 2026-11-23 21:40:02 UTC"));
  const std::string ended = TextReport(verdict, TextOptions());
  EXPECT_THAT(ended, Not(HasSubstr("so far")));
  EXPECT_THAT(ended, HasSubstr("\nran       on node7, 2026-11-23 21:40:02 UTC"));
}

TEST(TextReport, NothingCheckedIsNotEverythingChecked) {
  Verdict verdict;
  EXPECT_THAT(CoverageReport(verdict), HasSubstr("no tensor was checked\n"));
  verdict.mutable_coverage()->set_tensors_checked(1);
  EXPECT_THAT(CoverageReport(verdict), HasSubstr("every tensor was checked\n"));
}

TEST(TextReport, CallersOfTheLineStandBelowIt) {
  RunBuilder run;
  run.Value(1)
      .Produce("aten::log")
      .Line("m.py:7 in forward")
      .CalledBy("t.py:9 in step")
      .CalledBy("...");
  run.Pass(2).Root(1);
  EXPECT_THAT(Report(run.Build()), HasSubstr("m.py:7 in forward\n"
                                             "called by t.py:9 in step\n"
                                             "          ...\n"));
}

TEST(TextReport, ProcessThatWasAttachedToWhileItRanCountsItsStepsFromThen) {
  RunFacts facts = RunBuilder().Build();
  EXPECT_THAT(Report(facts), Not(HasSubstr("attached while")));
  facts.mutable_run()->set_late(true);
  EXPECT_THAT(Report(facts), HasSubstr("attached while it was running: step 0 is the step"));
}

TEST(TextReport, CleanWithLostRecordsIsNotCalledClean) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_state()->set_records_dropped(3);
  EXPECT_THAT(Report(facts), StartsWith("UNKNOWN"));
}

TEST(TextReport, RunInWhichNothingWasCheckedIsNotCalledClean) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_state()->set_tensors_checked(0);
  const std::string report = Report(facts);
  EXPECT_THAT(report, StartsWith("UNKNOWN"));
  EXPECT_THAT(report, HasSubstr("--level full"));
}

// A forked child that ends by os._exit leaves its findings and no counters.
TEST(TextReport, RunThatSawSomethingIsNotSaidToHaveCheckedNothing) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").Nan();
  RunFacts facts = run.Build();
  facts.mutable_state()->set_tensors_checked(0);
  const std::string report = Report(facts);
  EXPECT_THAT(report, StartsWith("UNKNOWN"));
  EXPECT_THAT(Unwrapped(report), HasSubstr("non-finite values were seen, but the process ended"));
  EXPECT_THAT(report, Not(HasSubstr("no tensor was checked")));
}

TEST(TextReport, StepsAtLevelIdleAreNotCalledClean) {
  RunFacts facts = RunBuilder().Build();
  for (const uint64_t steps : {435, 0, 0, 365}) facts.mutable_state()->add_steps_watched(steps);
  std::string report = Report(facts);
  EXPECT_THAT(report, StartsWith("UNKNOWN   train.py"));
  EXPECT_THAT(
      Unwrapped(report),
      HasSubstr("no non-finite value was seen in the 365 of 800 steps "
                "that were watched; the others ran at level idle, or could not be watched"));
  ExpectFitsTheScreen(report);

  facts.mutable_state()->set_tensors_checked(0);
  facts.mutable_state()->set_steps_watched(3, 0);
  EXPECT_THAT(Unwrapped(Report(facts)),
              HasSubstr("all 435 steps ran at level idle, which checks nothing"));
}

TEST(TextReport, CleanAtLevelAutoSaysHowManyStepsWereWatched) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_run()->set_level(static_cast<uint32_t>(wire::Level::kAuto));
  for (const uint64_t steps : {435, 300, 0, 65}) facts.mutable_state()->add_steps_watched(steps);
  const std::string report = Report(facts);
  EXPECT_THAT(report, StartsWith("CLEAN"));
  EXPECT_THAT(Unwrapped(report), HasSubstr("in the 365 of 800 steps that were watched"));
}

TEST(TextReport, CleanSaysWhichStepsWereOffToMeasureTheOverhead) {
  RunFacts facts = RunBuilder().Build();
  facts.mutable_state()->mutable_clocks()->set_optimizer_steps(0, 5000);
  for (const uint64_t steps : {48, 0, 0, 4952}) facts.mutable_state()->add_steps_watched(steps);
  facts.mutable_state()->set_steps_off(48);
  const std::string report = Report(facts);
  EXPECT_THAT(report, StartsWith("CLEAN"));
  EXPECT_THAT(Unwrapped(report), HasSubstr("watched 5,000 steps (4,952 full, 48 unchecked to "
                                           "measure the overhead), 900 tensors"));
  EXPECT_THAT(report, Not(HasSubstr("idle")));
  EXPECT_THAT(report, Not(HasSubstr("kind of tensor")));
  EXPECT_THAT(Unwrapped(report), HasSubstr("overhead not measured: too few comparisons"));
  const std::string coverage = CoverageReport(Diagnose({facts}));
  EXPECT_THAT(coverage, HasSubstr("not measured: too few comparisons\n"));
  EXPECT_THAT(coverage, Not(HasSubstr("at level idle")));
  EXPECT_THAT(coverage, HasSubstr("48   steps, not tensors: nanwatch had switched its checks off "
                                  "to measure its own cost\n"));
}

TEST(TextReport, JobThatDiedWhileItsChecksWereOffIsNotCalledClean) {
  RunFacts facts = RunBuilder().Build();
  for (const uint64_t steps : {4, 0, 0, 500}) facts.mutable_state()->add_steps_watched(steps);
  facts.mutable_state()->set_steps_off(4);
  facts.mutable_state()->set_off_now(true);
  facts.mutable_state()->set_ended(true);
  facts.mutable_state()->set_exit_code(1);
  const std::string report = Report(facts);
  EXPECT_THAT(report, StartsWith("UNKNOWN"));
  EXPECT_THAT(Unwrapped(report), HasSubstr("the job ended while nanwatch had switched its checks "
                                           "off to measure its own cost"));
  ExpectFitsTheScreen(report);
}

TEST(TextReport, NothingObservedTellsWhereToLook) {
  const std::string report = TextReport(Diagnose({}), TextOptions());
  EXPECT_THAT(report, StartsWith("UNKNOWN"));
  EXPECT_THAT(report, HasSubstr("nanwatch doctor --python PY"));
  ExpectFitsTheScreen(report);
}

TEST(TextReport, ExpectedListsThePlacesAndAsksForNothing) {
  RunBuilder run;
  for (uint32_t step = 0; step < 3; ++step) {
    run.Value(step + 1).Scalar("aten::full").At("1", "Attn").Step(step).NegInf();
  }
  const std::string report = Report(run.Build());
  EXPECT_THAT(report, StartsWith("EXPECTED  train.py"));
  EXPECT_THAT(report,
              HasSubstr("seen      aten::full, a constant written by the program, 1 (Attn): 3 "
                        "findings, steps 0 to 2\n"));
  EXPECT_THAT(report, HasSubstr("do        nothing\n"));
  ExpectFitsTheScreen(report);
}

TEST(TextReport, ProcessThatWasKilledIsSaidToBe) {
  RunFacts facts = MaskedRow();
  facts.mutable_state()->set_signal(9);
  EXPECT_THAT(Report(facts), HasSubstr("ended     killed by signal 9\n"));
}

TEST(CoverageReport, SummariesOfStepsThatWereLostAreShown) {
  RunFacts facts = RunBuilder().Build();
  EXPECT_THAT(CoverageReport(Diagnose({facts})), Not(HasSubstr("summaries")));
  facts.mutable_state()->set_steps_lost(1'234);
  const Verdict verdict = Diagnose({facts});
  EXPECT_THAT(CoverageReport(verdict),
              HasSubstr("step summaries lost            1,234   steps came faster than they were "
                        "read: loss and gradient norm have gaps, findings have none\n"));
  const std::string report = TextReport(verdict, TextOptions());
  EXPECT_THAT(report, StartsWith("CLEAN"));
  EXPECT_THAT(Unwrapped(report), HasSubstr("0 records lost, 1,234 summaries of steps lost"));
  ExpectFitsTheScreen(report);
}

TEST(CoverageReport, EveryReasonHasItsMeaning) {
  RunFacts facts = RunBuilder().Build();
  for (int reason = 0; reason < 17; ++reason) facts.mutable_state()->add_unchecked(1);
  const std::string report = CoverageReport(Diagnose({facts}));
  EXPECT_THAT(report, HasSubstr("sparse"));
  EXPECT_THAT(report, HasSubstr("after_poisoned"));
  EXPECT_THAT(report, HasSubstr("tensors checked                  900\n"));
  EXPECT_THAT(report, HasSubstr("gpu_busy"));
  const std::string unknown = "a reason that this version of nanwatch does not know";
  EXPECT_EQ(report.find(unknown), report.rfind(unknown));
  EXPECT_LT(report.find("reason_16"), report.find(unknown));
}

Verdict OfOrigin(const Finding& origin) {
  RunBuilder run;
  run.Value(1).Produce("aten::exp").Step(3).NeedsGradient().Nan();
  run.Pass(2).Root(1);
  Verdict verdict = Diagnose({run.Build()});
  verdict.mutable_incidents(0)->mutable_origin()->MergeFrom(origin);
  return verdict;
}

TEST(TextReport, TheOutermostModuleHasAName) {
  Finding origin;
  origin.set_layer_type("Net");
  const std::string report = Unwrapped(TextReport(OfOrigin(origin), TextOptions()));
  EXPECT_THAT(report, HasSubstr("forward, the whole model (Net)"));
}

TEST(TextReport, BatchThatTheOutermostModuleReadsIsIntoIt) {
  Finding origin;
  origin.set_kind("input_data");
  EXPECT_THAT(Unwrapped(TextReport(OfOrigin(origin), TextOptions())),
              HasSubstr("step 3, the input batch already in the batch"));
  origin.set_layer_type("Net");
  EXPECT_THAT(Unwrapped(TextReport(OfOrigin(origin), TextOptions())),
              HasSubstr("the input batch, into the whole model (Net)"));
}

TEST(TextReport, UpdatesThatTheScalerSkippedAreCountedBesideTheStep) {
  Finding origin;
  EXPECT_THAT(TextReport(OfOrigin(origin), TextOptions()), Not(HasSubstr("iteration")));
  origin.set_step(6);
  origin.set_iteration(16);
  EXPECT_THAT(
      Unwrapped(TextReport(OfOrigin(origin), TextOptions())),
      HasSubstr("step 6 (iteration 16, counting updates that the scaler skipped), forward"));
}

TEST(TextReport, AStepOfSeveralOptimizersIsSaidToBeACycle) {
  Finding origin;
  origin.set_step(12);
  origin.set_iteration(12);
  origin.set_updates(71);
  EXPECT_THAT(
      Unwrapped(TextReport(OfOrigin(origin), TextOptions())),
      HasSubstr("step 12 (after 71 updates by several optimizers; a step is one update of the "
                "optimizer that updates least often), forward"));
}

TEST(TextReport, AStepInDoubtIsNoDoubtAboutTheOp) {
  Finding origin;
  origin.set_class_("produce");
  origin.set_op("aten::div");
  origin.set_step(2);
  origin.set_iteration(2);
  origin.add_unseen("turns");
  const std::string report = Unwrapped(TextReport(OfOrigin(origin), TextOptions()));
  EXPECT_THAT(
      report,
      HasSubstr("step 2 (counted for the optimizer that ran then; there were too few updates "
                "to tell whether several optimizers take turns), forward"));
  EXPECT_THAT(report, HasSubstr("aten::div, made NaN from finite values"));
}

}  // namespace
}  // namespace nanwatch
