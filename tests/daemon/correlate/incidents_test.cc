// SPDX-License-Identifier: Apache-2.0
// What belongs together, what comes first, and the chain that is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/correlate/correlate.h"
#include "tests/daemon/correlate/run_builder.h"

namespace nanwatch {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> OpsOf(const Incident& incident) {
  std::vector<std::string> ops;
  for (const Finding& link : incident.chain()) ops.push_back(link.op());
  return ops;
}

TEST(Incidents, SamePlaceAtManyStepsIsOneIncidentWithACount) {
  RunBuilder run;
  for (uint32_t step = 2; step < 7; ++step) {
    run.Value(step * 10).Produce("aten::nll_loss_forward").Step(step).Nan();
    run.Pass(step * 10 + 1).Root(step * 10);
  }
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).count(), 5u);
  EXPECT_EQ(verdict.incidents(0).first_step(), 2);
  EXPECT_EQ(verdict.incidents(0).last_step(), 6);
  EXPECT_EQ(verdict.incidents(0).origin().step(), 2);
}

TEST(Incidents, OccurrencesThatTheRingHadNoRoomForAreCounted) {
  RunBuilder run;
  run.Value(1).Produce("aten::nll_loss_forward").Nan().Times(40);
  run.Pass(2).Root(1);
  EXPECT_EQ(Correlate({run.Build()}).incidents(0).count(), 40u);
}

TEST(Incidents, OccurrenceThatReachedSomethingIsToldInsteadOfAnEarlierHarmlessOne) {
  RunBuilder run;
  run.Value(1).Produce("aten::div").At("ratio").Step(2).Nan();
  run.Value(5).Produce("aten::div").At("ratio").Step(6).Nan();
  run.Pass(6).Root(5);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().step(), 6);
  EXPECT_EQ(verdict.incidents(0).first_step(), 2);
}

TEST(Incidents, RecomputedForwardIsTheSameIncident) {
  RunBuilder run;
  run.Step(4);
  run.Value(1).Produce("aten::div").At("layers.0.norm").Line("train.py:7 in forward").Nan();
  run.Pass(2).Root(1);
  run.Value(3)
      .Produce("aten::div")
      .At("layers.0.norm")
      .Line("train.py:7 in forward")
      .Recompute()
      .Nan();
  run.Pass(4).Number(1).Leaf("emb.weight", 3);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_FALSE(verdict.incidents(0).origin().recompute());
}

TEST(Incidents, UntaintedProducerElsewhereIsAnotherIncident) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").At("a").Nan();
  run.Pass(2).Root(1);
  run.Value(3).Produce("aten::sqrt").At("b").Nan();
  run.Pass(4).Root(3);
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 2);
}

TEST(Incidents, OriginIsExactOnlyWhereEverySourceOnTheWayFromItIs) {
  for (const uint64_t assumed : {0u, 1u, 2u, 3u}) {
    RunBuilder run;
    const auto value = [&](uint64_t ticket) -> ValueBuilder& {
      ValueBuilder& made = run.Value(ticket);
      return ticket == assumed ? made.Inexact() : made;
    };
    value(1).Produce("aten::sqrt").At("a").Nan();
    value(2).Propagate("aten::mul").At("a").From(1).Nan();
    run.Pass(4).Root(2);
    // Comes of it as well, and did no harm.
    value(3).Propagate("aten::neg").At("b").From(1).Nan();
    const Verdict verdict = Correlate({run.Build()});
    ASSERT_EQ(verdict.incidents_size(), 1);
    EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::sqrt");
    EXPECT_EQ(verdict.incidents(0).origin().exact(), assumed == 0 || assumed == 3) << assumed;
  }
}

TEST(Incidents, AnOriginSaysWhatStoodOutOfSight) {
  using Value = wire::ValueRecord;
  for (const auto& [flags, words] :
       {std::pair{uint32_t{Value::kUnseenInputs}, "inputs"},
        std::pair{uint32_t{Value::kUnseenLevel}, "level"},
        std::pair{uint32_t{Value::kUnseenParent}, "parent"},
        std::pair{uint32_t{Value::kUnseenTable}, "table"},
        std::pair{uint32_t{Value::kInexact}, "ops"},
        std::pair{Value::kUnseenLevel | Value::kInexact, "ops level"}}) {
    RunBuilder run;
    run.Value(1).Produce("aten::sqrt").At("a").Nan().Flag(flags);
    run.Pass(2).Root(1);
    const Verdict verdict = Correlate({run.Build()});
    ASSERT_EQ(verdict.incidents_size(), 1);
    const Finding& origin = verdict.incidents(0).origin();
    EXPECT_FALSE(origin.exact()) << words;
    std::string said;
    for (const std::string& word : origin.unseen()) said += (said.empty() ? "" : " ") + word;
    EXPECT_EQ(said, words);
  }
}

TEST(Incidents, WhatTheBackwardOfALossOfUnseenOriginMakesIsNotTheOrigin) {
  RunBuilder run;
  run.Value(1).Propagate("aten::neg").At("loss").FromUnknown().PosInf();
  run.Pass(2).Number(1).Root(1);
  run.Value(3).Produce("aten::div").At("loss").Backward("LogBackward0").InPass(1).Nan();
  run.Pass(4).Number(1).Leaf("fc.weight", 3);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::neg");
  EXPECT_FALSE(verdict.incidents(0).origin().exact());
}

TEST(Incidents, BadParametersComeBeforeABadLossAndThatBeforeAMask) {
  RunBuilder run;
  run.Value(1).Scalar("aten::full").At("mask").NegInf();
  run.Value(2).Produce("aten::log").At("loss").Nan();
  run.Pass(3).Root(2);
  run.Value(4).Produce("aten::sqrt").Backward("SqrtBackward0").At("model").Nan();
  run.Pass(5).Leaf("fc.weight", 4);
  run.Update(6).Parameter("fc.weight", 4);
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 3);
  EXPECT_EQ(verdict.incidents(0).severity(), "critical");
  EXPECT_EQ(verdict.incidents(1).severity(), "error");
  EXPECT_EQ(verdict.incidents(2).severity(), "info");
}

TEST(Incidents, EarlierOfEqualsComesFirst) {
  RunBuilder run;
  run.Value(1).Produce("aten::log").At("z").Step(2).Nan();
  run.Pass(2).Root(1);
  run.Value(3).Produce("aten::sqrt").At("a").Step(3).Nan();
  run.Pass(4).Root(3);
  EXPECT_EQ(Correlate({run.Build()}).incidents(0).origin().layer(), "z");
}

TEST(Incidents, WhatBadParametersCauseIsNotANewIncident) {
  RunBuilder run;
  run.Value(1).Produce("aten::sqrt").Backward("SqrtBackward0").At("model").Step(5).Nan();
  run.Pass(2).Leaf("fc.weight", 1);
  run.Update(3).Parameter("fc.weight", 1);
  run.Value(4)
      .Propagate("aten::addmm")
      .At("fc")
      .Step(6)
      .FromOutside(wire::Target::kParameter, "fc.weight")
      .Nan();
  run.Value(5)
      .Propagate("aten::addmm")
      .At("out")
      .FromOutside(wire::Target::kParameter, "out.bias")
      .Nan();
  const Verdict verdict = Correlate({run.Build()});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_EQ(verdict.incidents(0).origin().op(), "aten::sqrt");
  EXPECT_EQ(verdict.incidents(0).origin().step(), 5);
}

TEST(Incidents, ValueOfTheStepThatSpoiledTheParametersIsNotAssumedToBeMadeOfCleanInputs) {
  RunBuilder run;
  run.Value(1).Produce("aten::sqrt").Backward("SqrtBackward0").At("model").Step(5).Nan();
  run.Value(2).Propagate("aten::addcdiv_").Optimizer("fc.weight").From(1).Nan();
  run.Value(3).Produce("aten::exp").At("prob").InputsUnseen().Nan();
  run.Pass(4).Root(3);
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 1);
}

TEST(Incidents, ValueOfALaterStepSaysThatParametersAreCleanAgain) {
  RunBuilder run;
  run.Value(1).Produce("aten::sqrt").Backward("SqrtBackward0").At("model").Step(5).Nan();
  run.Update(2).Parameter("fc.weight", 1);
  run.Value(3).Produce("aten::exp").At("prob").Step(9).InputsUnseen().Nan();
  run.Pass(4).Root(3);
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 2);
}

TEST(Incidents, AfterAnUpdateFoundEverythingCleanTheStoryIsANewOne) {
  RunBuilder run;
  run.Value(1).Produce("aten::sqrt").Backward("SqrtBackward0").At("model").Nan();
  run.Update(3).Parameter("fc.weight", 1);
  run.Update(4).AllClean();
  run.Value(5).Produce("aten::exp").At("prob").InputsUnseen().Nan();
  run.Pass(6).Root(5);
  EXPECT_EQ(Correlate({run.Build()}).incidents_size(), 2);
}

TEST(Incidents, ChainTellsOriginFirstNanLossGradientAndParameter) {
  RunBuilder run;
  run.Step(7);
  run.Value(1).Produce("aten::exp").At("prob").PosInf();
  run.Value(2).InfToNan("aten::div").At("prob").From(1).Nan();
  run.Value(3).Propagate("aten::mean").From(2).Nan();
  run.Value(4).Propagate("aten::mm").Backward("AddmmBackward0").At("fc.0").From(3).Nan();
  run.Pass(5).Root(3).Leaf("fc.0.weight", 4).Leaf("fc.2.weight", 4);
  run.Value(6).Propagate("aten::addcdiv_").Optimizer("fc.0.weight").From(4).Nan();
  run.Update(7).Parameter("fc.0.weight", 6);
  const Verdict verdict = Correlate({run.Build()});
  const Incident& incident = verdict.incidents(0);
  EXPECT_THAT(OpsOf(incident),
              ElementsAre("aten::exp", "aten::div", "aten::mean", "aten::mm", "aten::addcdiv_"));
  EXPECT_EQ(incident.chain(2).reach(), "loss");
  EXPECT_EQ(incident.chain(3).reach(), "gradient");
  EXPECT_EQ(incident.chain(3).param(), "fc.0.weight");
  EXPECT_EQ(incident.chain(4).reach(), "parameter");
  EXPECT_EQ(incident.gradients(), 2u);
  EXPECT_EQ(incident.parameters(), 1u);
}

TEST(Incidents, GradientsAreCountedWhenThePassIsOver) {
  RunBuilder run;
  run.Value(1).Produce("aten::exp").At("prob").PosInf();
  run.Pass(2).Number(1).Leaf("a", 1);
  run.Pass(3).Number(1).Leaf("a", 1).Leaf("b", 1).Leaf("c", 1);
  run.Pass(4).Number(2).Leaf("a", 1).Leaf("b", 1).Leaf("c", 1).Leaf("d", 1);
  EXPECT_EQ(Correlate({run.Build()}).incidents(0).gradients(), 3u);
}

TEST(Incidents, LongChainIsCutToSixteenLinksAndKeepsItsEnds) {
  RunBuilder run;
  run.Value(1).Produce("aten::exp").PosInf();
  for (uint64_t ticket = 2; ticket < 60; ++ticket) {
    run.Value(ticket)
        .Propagate("aten::add")
        .At("layer" + std::to_string(ticket))
        .From(ticket - 1)
        .PosInf();
  }
  run.Value(60).InfToNan("aten::sub").From(59).Nan();
  run.Value(61).Propagate("aten::mean").From(60).Nan();
  run.Pass(62).Root(61);
  const Verdict verdict = Correlate({run.Build()});
  const Incident& incident = verdict.incidents(0);
  ASSERT_EQ(incident.chain_size(), 16);
  EXPECT_EQ(incident.chain(0).op(), "aten::exp");
  EXPECT_EQ(incident.chain(14).op(), "aten::sub");
  EXPECT_EQ(incident.chain(15).op(), "aten::mean");
}

TEST(Incidents, OpsBeforeTheOriginAreToldWithWhatItsOwnOpMadeEarlier) {
  RunBuilder run;
  run.Value(7).Produce("aten::exp").At("scale").Phase(wire::Phase::kForward).Step(3).Nan();
  run.Pass(8).Root(7);
  RunFacts facts = run.Build();
  Record& record = *facts.add_records();
  record.set_ticket(9);
  TrailFact& trail = *record.mutable_trail();
  trail.set_value(7);
  for (const char* name : {"aten::exp", "scale", "aten::mul", "gate"}) trail.add_names(name);
  const auto add = [&trail](uint32_t op, uint32_t layer, uint32_t iteration, double largest,
                            wire::TrailOp::Known known) {
    TrailFact::Op& added = *trail.add_ops();
    added.set_op(op);
    added.set_layer(layer);
    added.set_iteration(iteration);
    added.set_largest(largest);
    added.set_known(known);
    added.set_phase(static_cast<uint32_t>(wire::Phase::kForward));
    added.set_element_type(static_cast<uint32_t>(wire::ElementType::kFloat16));
  };
  add(0, 1, 1, 20, wire::TrailOp::kExact);
  add(0, 1, 1, 30, wire::TrailOp::kExact);
  add(0, 3, 1, 99, wire::TrailOp::kExact);  // in another layer
  add(0, 1, 2, 400, wire::TrailOp::kAtLeast);
  add(2, 3, 3, 11, wire::TrailOp::kExact);
  add(2, 77, 3, 0, wire::TrailOp::kNothing);
  const Verdict verdict = Correlate({facts});
  ASSERT_EQ(verdict.incidents_size(), 1);
  const Incident& incident = verdict.incidents(0);
  ASSERT_EQ(incident.history_size(), 2);
  EXPECT_EQ(incident.history(0).largest(), 30);
  EXPECT_EQ(incident.history(0).steps_before(), 2u);
  EXPECT_EQ(incident.history(1).largest(), 400);
  EXPECT_TRUE(incident.history(1).at_least());
  ASSERT_EQ(incident.trail_size(), 5);
  const TrailOp& last = incident.trail(4);
  EXPECT_EQ(last.op() + last.layer() + last.phase() + last.dtype(), "aten::mulgateforwardfloat16");
  EXPECT_EQ(last.steps_before(), 0u);
}

TEST(Incidents, TheOriginHasTheKernelsThatItsOwnOpRan) {
  RunBuilder run;
  run.Value(3).Produce("aten::log").Nan();
  run.Value(4).Propagate("aten::mul").From(3).Nan();
  run.Pass(5).Root(4);
  RunFacts facts = run.Build();
  const auto add = [&facts](uint64_t ticket, uint64_t value, const char* name) {
    Record& record = *facts.add_records();
    record.set_ticket(ticket);
    record.mutable_kernels()->set_value(value);
    KernelsFact::Kernel& kernel = *record.mutable_kernels()->add_kernels();
    kernel.set_name(name);
    kernel.set_count(2);
    kernel.set_nanoseconds(700);
  };
  add(8, 3, "_ZN2at6native10log_kernelIfEEvT_");
  add(9, 4, "mul_kernel");
  const Verdict verdict = Correlate({facts});
  ASSERT_EQ(verdict.incidents_size(), 1);
  const Finding& origin = verdict.incidents(0).origin();
  ASSERT_EQ(origin.kernels_size(), 1);
  EXPECT_EQ(origin.kernels(0).name(), "void at::native::log_kernel<float>(float)");
  EXPECT_EQ(origin.kernels(0).count(), 2u);
  EXPECT_EQ(origin.kernels(0).nanoseconds(), 700u);
}

TEST(Incidents, StatisticsAreThoseOfTheOrigin) {
  RunBuilder run;
  RecordTensor output = Tensor({2, 3, 4});
  output.set_nan(4);
  output.set_first_bad(17);
  RecordTensor input = Tensor({2, 3, 4}, "self");
  input.set_neg_inf(12);
  run.Value(1).InfToNan("aten::_softmax").Output(output).Input(input);
  run.Pass(2).Root(1);
  const Verdict verdict = Correlate({run.Build()});
  const Finding& origin = verdict.incidents(0).origin();
  EXPECT_THAT(origin.outputs(0).first_bad_index(), ElementsAre(1, 1, 1));
  EXPECT_EQ(origin.outputs(0).dtype(), "float32");
  EXPECT_EQ(origin.inputs(0).role(), "self");
  EXPECT_EQ(origin.inputs(0).neg_inf(), 12u);
  EXPECT_TRUE(origin.inputs_seen());
}

// Nothing is recorded of steps whose weights are dead, but their loss is told.
TEST(Incidents, TheLossOfDeadWeightsBelongsToWhatKilledThem) {
  RunBuilder run;
  run.Value(1).Produce("aten::addcdiv_").Step(4).Optimizer("head.weight").Nan();
  RunFacts facts = run.Build();
  EXPECT_THAT(Correlate({facts}).incidents(0).reach(), testing::Not(testing::Contains("loss")));
  DeadSteps& dead = *facts.mutable_training()->mutable_dead();
  *dead.mutable_first() = OptimizerClocks({5});
  *dead.mutable_last() = OptimizerClocks({9});
  const Verdict verdict = Correlate({facts});
  ASSERT_EQ(verdict.incidents_size(), 1);
  EXPECT_THAT(verdict.incidents(0).reach(), testing::Contains("loss"));
  EXPECT_EQ(verdict.incidents(0).first_step(), 4);
  EXPECT_EQ(verdict.incidents(0).last_step(), 9);
  const Finding& last = *verdict.incidents(0).chain().rbegin();
  EXPECT_EQ(last.reach(), "loss");
  EXPECT_EQ(last.step(), 5);
}

// As at level canary, where nobody saw what made the loss Inf, and the optimizer divided Inf by Inf.
TEST(Incidents, NanThatAnUpdateMakesOfALostLossBelongsToTheLoss) {
  const auto incidents_after = [](bool loss_was_bad) {
    RunBuilder run;
    run.Value(1).Propagate("torch.autograd.backward").Step(3).Inexact().PosInf();
    if (loss_was_bad) run.Pass(2).Root(1);
    run.Value(3).Propagate("aten::lerp_").Step(3).From(1).PosInf();
    run.Value(4).InfToNan("aten::addcdiv_").Step(3).From(3).Optimizer("2.weight").Nan();
    return Correlate({run.Build()}).incidents();
  };
  ASSERT_EQ(incidents_after(true).size(), 1);
  EXPECT_EQ(incidents_after(true)[0].origin().op(), "torch.autograd.backward");
  EXPECT_THAT(incidents_after(true)[0].reach(), testing::Contains("parameter"));
  EXPECT_EQ(incidents_after(false)[0].origin().op(), "aten::addcdiv_") << "nothing was lost before";
}

// What died before the weights did is not their doing.
TEST(Incidents, ALossBeforeTheWeightsDiedIsNotTheirs) {
  RunBuilder run;
  run.Value(1).Produce("aten::addcdiv_").Step(6).Optimizer("head.weight").Nan();
  RunFacts facts = run.Build();
  *facts.mutable_training()->mutable_dead()->mutable_first() = OptimizerClocks({5});
  *facts.mutable_training()->mutable_dead()->mutable_last() = OptimizerClocks({5});
  EXPECT_THAT(Correlate({facts}).incidents(0).reach(), testing::Not(testing::Contains("loss")));
}

}  // namespace
}  // namespace nanwatch
