// SPDX-License-Identifier: Apache-2.0
// Facts of ops in, records out: classes, sources and what follows of a finding.
#include "shim/observe/finding/findings.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "shim/check/scan.h"
#include "shim/observe/thread/location.h"
#include "shim/observe/thread/seen_inputs.h"
#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

using wire::FindingClass;
using wire::SourceKind;
using wire::ValueRecord;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class FindingsTest : public testing::Test {
 protected:
  ~FindingsTest() override { scope_stack = ScopeStack{}; }

  // An op on this thread. Without `inputs` nobody has asked for them.
  Frame& BeginOp(const char* name, const char* overload = "") {
    Frame& frame = on_.thread.frames[0];
    frame = Frame{};
    frame.op = &on_.Op(name, overload);
    frame.sequence = -1;
    frame.kind = FrameKind::kOp;
    frame.cleared_flags = 0;
    on_.thread.inputs_used = 0;
    return frame;
  }
  // The op read this, as inputs.cc records it.
  InputSeen& Read(Frame& frame, const at::Tensor& tensor, uint16_t argument = 0) {
    frame.inputs_seen = true;
    InputSeen& input = on_.thread.inputs[on_.thread.inputs_used++];
    input = InputSeen{};
    const PlainTensor plain = ObservedTraining::Plain(tensor);
    input.Copy(plain);
    input.argument = argument;
    input.kinds = NonFiniteKinds(plain.view);
    input.known = input.kinds != 0 && on_.known_bad.Find(plain, &input.bad);
    frame.inputs_count = static_cast<uint16_t>(frame.inputs_count + 1);
    frame.input_bad = frame.input_bad || input.kinds != 0;
    return input;
  }
  void EndBad(Frame& frame, const at::Tensor& result) {
    const BadOutput output{ObservedTraining::Plain(result), 0, result.requires_grad()};
    on_.findings.OnBadOutputs(&on_.thread, frame, &output, 1);
  }
  // A value that an op has made bad.
  at::Tensor Made(float value, const char* op = "aten::log") {
    at::Tensor made = at::full({4}, value);
    EndBad(BeginOp(op), made);
    return made;
  }
  wire::Source KnownAs(const at::Tensor& tensor) {
    wire::Source source{};
    ValueRef value;
    EXPECT_TRUE(on_.known_bad.SourceOf(ObservedTraining::Plain(tensor), &source, &value));
    return source;
  }
  FindingClass ClassOfNewest() {
    const auto values = on_.Values();
    if (values.empty()) return {};
    // Recent values are numbered from 1, in the order of findings; here all are written.
    return on_.ClassOf({values.back().header.ticket, values.size()});
  }

  ObservedTraining on_;
};

TEST_F(FindingsTest, CallsTheFirstBadResultOfAnOpProduced) {
  Made(kNan);
  EXPECT_EQ(on_.Values().size(), 1u);
  EXPECT_EQ(ClassOfNewest(), FindingClass::kProduce);
  EXPECT_EQ(on_.Values()[0].n_sources, 0);
}

TEST_F(FindingsTest, DoubtsWhatItMadeOfInputsThatNobodyHasRead) {
  Made(kNan);
  EXPECT_NE(on_.Values()[0].flags & ValueRecord::kUnseenInputs, 0u)
      << "without a Python nobody can tell whether they were finite";
  EXPECT_EQ(on_.Values()[0].flags & ValueRecord::kInputsSeen, 0u);
}

TEST_F(FindingsTest, IsSureWhereInputsWereReadAndFinite) {
  const at::Tensor given = at::zeros({4});
  const at::Tensor made = at::full({4}, kNan);
  Frame& frame = BeginOp("aten::log");
  Read(frame, given);
  EndBad(frame, made);
  ASSERT_EQ(on_.Values().size(), 1u);
  EXPECT_EQ(ClassOfNewest(), FindingClass::kProduce);
  EXPECT_NE(on_.Values()[0].flags & ValueRecord::kInputsSeen, 0u);
  EXPECT_EQ(on_.Values()[0].flags & ValueRecord::kUnseenInputs, 0u);
}

TEST_F(FindingsTest, PassesOnWhatAnInputHad) {
  const at::Tensor first = Made(kNan);
  const at::Tensor second = at::full({4}, kNan);
  Frame& frame = BeginOp("aten::mul", "Tensor");
  Read(frame, first, 1);
  EndBad(frame, second);
  const auto values = on_.Values();
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(ClassOfNewest(), FindingClass::kPropagate);
  ASSERT_EQ(values[1].n_sources, 1);
  EXPECT_EQ(values[1].sources[0].kind, static_cast<uint8_t>(SourceKind::kValue));
  EXPECT_EQ(values[1].sources[0].value, values[0].header.ticket);
  EXPECT_EQ(values[1].sources[0].input, 1);
}

TEST_F(FindingsTest, CallsANanOfAnInfANewFault) {
  const at::Tensor inf = Made(kInf, "aten::exp");
  const at::Tensor nan = at::full({4}, kNan);
  Frame& frame = BeginOp("aten::sub", "Tensor");
  Read(frame, inf, 0);
  EndBad(frame, nan);
  EXPECT_EQ(ClassOfNewest(), FindingClass::kInfToNan);
  EXPECT_EQ(on_.Values()[1].n_sources, 1);
}

TEST_F(FindingsTest, CallsAFillThatWasAskedForAScalar) {
  const at::Tensor mask = at::full({4}, -kInf);
  EndBad(BeginOp("aten::fill_", "Scalar"), mask);
  EXPECT_EQ(ClassOfNewest(), FindingClass::kScalar);
}

TEST_F(FindingsTest, TakesABadInputThatNoOpHasWrittenForExternal) {
  const at::Tensor batch = at::full({4}, kNan);
  const at::Tensor result = at::full({4}, kNan);
  Frame& frame = BeginOp("aten::mul", "Tensor");
  Read(frame, batch, 0);
  EndBad(frame, result);
  ASSERT_EQ(on_.Values().size(), 1u);
  ASSERT_EQ(on_.Values()[0].n_sources, 1);
  EXPECT_EQ(on_.Values()[0].sources[0].kind, static_cast<uint8_t>(SourceKind::kExternal));
  EXPECT_EQ(KnownAs(batch).target, static_cast<uint8_t>(wire::Target::kInputData))
      << "and knows it from now on";
}

TEST_F(FindingsTest, DoubtsWhatCameInByAResultOfAutograd) {
  const at::Tensor batch = at::full({4}, kNan);
  const at::Tensor result = at::full({4}, kNan);
  Frame& frame = BeginOp("aten::mul", "Tensor");
  Read(frame, batch, 0).is_result = true;
  EndBad(frame, result);
  EXPECT_NE(on_.Values()[0].flags & ValueRecord::kUnseenInputs, 0u);
}

TEST_F(FindingsTest, AssumesTheNewestBadValueWhereTheQueueDoes) {
  on_.late.assumes = true;
  const at::Tensor batch = at::full({4}, kNan);
  const at::Tensor result = at::full({4}, kNan);
  Frame& frame = BeginOp("aten::mul", "Tensor");
  Read(frame, batch, 0);
  EndBad(frame, result);
  const ValueRecord record = on_.Values()[0];
  ASSERT_EQ(record.n_sources, 1);
  EXPECT_EQ(record.sources[0].value, 77u);
  EXPECT_NE(record.flags & ValueRecord::kInexact, 0u);
}

TEST_F(FindingsTest, SaysNothingOfAnInPlaceOpThatLeavesAsMuchAsItFound) {
  at::Tensor bad = at::full({4}, kNan);
  EndBad(BeginOp("aten::log_"), bad);
  ASSERT_EQ(on_.Values().size(), 1u);
  EndBad(BeginOp("aten::mul_", "Tensor"), bad);
  EXPECT_EQ(on_.Values().size(), 1u);
  bad[0] = kInf;
  EndBad(BeginOp("aten::mul_", "Tensor"), bad);
  EXPECT_EQ(on_.Values().size(), 2u) << "one element is of another kind";
}

TEST_F(FindingsTest, SaysNothingOfBadRowsThatAnOpLeftAloneWhenItPutGoodOnesBesideThem) {
  at::Tensor weight = at::full({4}, kNan);
  EndBad(BeginOp("aten::fill_", "Scalar"), weight);
  ASSERT_EQ(on_.Values().size(), 1u);
  const auto put = [&](const at::Tensor& values) {
    Frame& frame = BeginOp("aten::index_put_");
    Read(frame, weight, 0).updated = true;
    Read(frame, values, 2);
    weight[0] = values[0];
    EndBad(frame, weight);
  };
  put(at::zeros({1}));
  EXPECT_EQ(on_.Values().size(), 1u);
  EndBad(BeginOp("aten::add_", "Tensor"), weight);
  EXPECT_EQ(on_.Values().size(), 1u) << "an update that steps over the rows has made nothing";
  put(at::full({1}, kNan));
  EXPECT_EQ(on_.Values().size(), 2u) << "a bad row was put there";
  weight[0] = kNan;
  put(at::full({1}, kNan));
  EXPECT_EQ(on_.Values().size(), 3u) << "one more, where there was one";
}

TEST_F(FindingsTest, BlamesABadRowThatAnOpPutsAndNotWhatTheParameterHeldBefore) {
  at::Tensor weight = at::full({4}, kNan);
  on_.external.Remember(ObservedTraining::Plain(weight), wire::Target::kParameter, "weight",
                        ExternalValues::Writer::kKnown);
  const at::Tensor row = Made(kNan);
  Frame& frame = BeginOp("aten::index_put_");
  Read(frame, weight, 0).updated = true;
  Read(frame, row, 2);
  EndBad(frame, weight);
  const ValueRecord record = on_.Values().back();
  ASSERT_EQ(record.n_sources, 1);
  EXPECT_EQ(record.sources[0].kind, static_cast<uint8_t>(SourceKind::kValue));
  EXPECT_EQ(record.sources[0].input, 2);
}

TEST_F(FindingsTest, SaysWhatIsLeftWhereNobodyHasReadWhatAnOpPutThere) {
  at::Tensor weight = at::full({4}, kNan);
  EndBad(BeginOp("aten::fill_", "Scalar"), weight);
  weight[0] = 0;
  EndBad(BeginOp("aten::index_put_"), weight);
  EXPECT_EQ(on_.Values().size(), 2u);
}

TEST_F(FindingsTest, DoubtsTheWriterOfRowsThatHaveBeenBadForLongOnceOthersWereReplacedUnread) {
  at::Tensor weight = at::full({4}, kNan);
  on_.external.Remember(ObservedTraining::Plain(weight), wire::Target::kParameter, "weight",
                        ExternalValues::Writer::kKnown);
  on_.bad_values.Settle(/*now_step=*/9, /*steps=*/1);
  ASSERT_EQ(on_.bad_values.transient(), 0u);
  EXPECT_EQ(KnownAs(weight).flags & wire::Source::kWriterUnseen, 0u);
  weight[0] = 0;
  EndBad(BeginOp("aten::index_put_"), weight);
  EXPECT_TRUE(on_.Values().empty());
  EXPECT_NE(KnownAs(weight).flags & wire::Source::kWriterUnseen, 0u);
  EXPECT_EQ(on_.bad_values.transient(), 1u) << "the next op is asked what it puts there";
}

TEST_F(FindingsTest, LeavesAValueToTheOpThatACompositeHasCalled) {
  const at::Tensor made = Made(kNan);
  Frame& outer = BeginOp("aten::linear");
  ASSERT_TRUE(outer.op->transparent);
  outer.child_bad = true;
  EndBad(outer, made);
  EXPECT_EQ(on_.Values().size(), 1u);
}

TEST_F(FindingsTest, RecordsAllOfTheFirstFindingsOfAPlaceAndKeepsLaterOnes) {
  for (int i = 0; i < 5; ++i) Made(kNan);
  EXPECT_EQ(on_.Values().size(), size_t{kFullRecordsPerSite});
  EXPECT_EQ(on_.thread.counters.values_bad, 5u);
}

TEST_F(FindingsTest, RemembersWhereTheValueLiesAndTracksInputs) {
  EXPECT_FALSE(on_.tracking.armed());
  const at::Tensor made = Made(kNan);
  EXPECT_EQ(KnownAs(made).kind, static_cast<uint8_t>(SourceKind::kValue));
  EXPECT_EQ(KnownAs(made).value, on_.Values()[0].header.ticket);
  EXPECT_EQ(on_.bad_values.transient(), 1u);
}

TEST_F(FindingsTest, GivesTheValueToTheNodeThatTheOpHasMade) {
  const at::Tensor made = at::full({4}, kNan);
  Frame& frame = BeginOp("aten::log");
  frame.sequence = 7;
  RememberSequence(&on_.thread, frame);
  EndBad(frame, made);
  EXPECT_EQ(SequenceOf(&on_.thread, frame)->value.ticket, on_.Values()[0].header.ticket);
}

TEST_F(FindingsTest, SaysNothingWhileParametersAreBad) {
  const at::Tensor parameter = at::full({4}, kNan);
  on_.poison.Mark(nullptr, ObservedTraining::Plain(parameter));
  on_.poison_watch.Settle();
  ASSERT_TRUE(on_.poison.Poisoned());
  Made(kNan);
  EXPECT_TRUE(on_.Values().empty());
  EXPECT_EQ(on_.thread.counters.values_bad, 1u) << "but counts it";
}

TEST_F(FindingsTest, MarksALeafThatAnUpdateHasLeftBad) {
  const c10::AutoGradMode no_grad(false);
  at::Tensor parameter = at::full({4}, kNan);
  parameter.set_requires_grad(true);
  on_.thread.optimizer_depth = 1;
  EndBad(BeginOp("aten::addcdiv_"), parameter);
  ASSERT_EQ(on_.Values().size(), 1u);
  EXPECT_NE(on_.Values()[0].flags & ValueRecord::kWroteParameter, 0u);
  on_.poison_watch.Settle();
  EXPECT_TRUE(on_.poison.Poisoned());
}

TEST_F(FindingsTest, DoesNotTakeALeafForAParameterBeforeThereWasAPass) {
  const c10::AutoGradMode no_grad(false);
  at::Tensor leaf = at::full({4}, kNan);
  leaf.set_requires_grad(true);
  EndBad(BeginOp("aten::mul_", "Tensor"), leaf);
  EXPECT_EQ(on_.Values().back().flags & ValueRecord::kWroteParameter, 0u);
  on_.marks.plain_update_due = true;
  leaf[0] = kInf;
  EndBad(BeginOp("aten::add_", "Tensor"), leaf);
  EXPECT_NE(on_.Values().back().flags & ValueRecord::kWroteParameter, 0u);
}

TEST_F(FindingsTest, PutsTheProofOnItsThreadAlone) {
  on_.thread.proof = true;
  Made(kNan);
  EXPECT_TRUE(on_.thread.proof_seen);
  EXPECT_TRUE(on_.Values().empty());
  EXPECT_EQ(on_.thread.counters.values_bad, 0u);
}

TEST_F(FindingsTest, ReportsAFindingOfAnOpWhoseKernelsAreTraced) {
  at::Tensor made = at::full({4}, kNan);
  BadOutput output{ObservedTraining::Plain(made), 0, false};
  Frame& frame = BeginOp("aten::log");
  frame.kernels_pushed = true;
  on_.findings.OnBadOutputs(&on_.thread, frame, &output, 1);
  EXPECT_TRUE(on_.finding_sink.tickets.empty()) << "it lies on the CPU";
  made = at::full({4}, kNan);
  output.tensor = ObservedTraining::Plain(made);
  output.tensor.gpu = 0;
  Frame& second = BeginOp("aten::log");
  second.kernels_pushed = true;
  on_.findings.OnBadOutputs(&on_.thread, second, &output, 1);
  ASSERT_EQ(on_.finding_sink.tickets.size(), 1u);
}

TEST_F(FindingsTest, LeavesAnOpOfACompiledRegionToItsEnd) {
  on_.thread.regions_open = 1;
  const at::Tensor inside = at::full({4}, kNan);
  const at::Tensor result = at::full({4}, kNan);
  Frame& frame = BeginOp("aten::mul", "Tensor");
  Read(frame, inside, 0);
  EndBad(frame, result);
  EXPECT_TRUE(on_.Values().empty());
}

TEST_F(FindingsTest, SuspectsTheLastNanThatPythonHasReadOfANumber) {
  const at::Tensor made = Made(kNan);
  on_.read_numbers.OnRead(KnownAs(made), {on_.Values()[0].header.ticket, 1}, kNan);
  const at::Tensor filled = at::full({4}, kNan);
  EndBad(BeginOp("aten::fill_", "Scalar"), filled);
  const ValueRecord record = on_.Values().back();
  EXPECT_EQ(ClassOfNewest(), FindingClass::kScalar);
  ASSERT_EQ(record.n_sources, 1);
  EXPECT_EQ(record.sources[0].value, on_.Values()[0].header.ticket);
  EXPECT_NE(record.flags & ValueRecord::kUnseenInputs, 0u) << "it is a guess";
}

TEST_F(FindingsTest, FindsAFinishedUpdateGuiltyOnlyWhereItWasGivenFinite) {
  const c10::AutoGradMode no_grad(false);
  on_.thread.optimizer_depth = 1;
  on_.thread.given_finite_after_passes_plus_one = 1;  // of no pass so far
  const at::Tensor state = at::full({4}, kNan);
  EndBad(BeginOp("aten::lerp_", "Scalar"), state);
  EXPECT_NE(ClassOfNewest(), FindingClass::kProduce) << "it mixes finite into finite";
  on_.progress.OnPassReachedLeaf();  // a closure makes gradients anew
  const at::Tensor other = at::full({4}, kNan);
  EndBad(BeginOp("aten::lerp_", "Scalar"), other);
  EXPECT_EQ(ClassOfNewest(), FindingClass::kProduce);
}

class CleanOutputsTest : public FindingsTest {
 protected:
  std::vector<wire::KillRecord> Kills() {
    return on_.Emitted<wire::KillRecord>(wire::RecordKind::kKill);
  }
};

TEST_F(CleanOutputsTest, EndABadValueInAnOpThatLeftNothingBad) {
  const at::Tensor made = Made(kNan);
  Frame& frame = BeginOp("aten::nan_to_num");
  Read(frame, made);
  on_.clean_outputs.OnClean(&on_.thread, frame);
  ASSERT_EQ(Kills().size(), 1u);
  ASSERT_EQ(Kills()[0].n_sources, 1);
  EXPECT_EQ(Kills()[0].sources[0].value, on_.Values()[0].header.ticket);
}

TEST_F(CleanOutputsTest, EndNothingInAnOpThatReadsShapesAlone) {
  const at::Tensor made = Made(kNan);
  Frame& frame = BeginOp("aten::zeros_like");
  Read(frame, made);
  on_.clean_outputs.OnClean(&on_.thread, frame);
  EXPECT_TRUE(Kills().empty());
}

TEST_F(CleanOutputsTest, MakeMemoryGoodAgainThatWasWrittenOver) {
  const at::Tensor made = Made(kNan);
  Frame& frame = BeginOp("aten::zero_");
  Read(frame, made).overwritten = true;
  on_.clean_outputs.OnClean(&on_.thread, frame);
  BadEntry entry;
  EXPECT_FALSE(on_.known_bad.Find(ObservedTraining::Plain(made), &entry));
}

TEST_F(CleanOutputsTest, TakeAViewOfABadValueForItWhereNodesAreConcerned) {
  const at::Tensor made = Made(kNan);
  Frame& frame = BeginOp("aten::t");
  frame.sequence = 9;
  RememberSequence(&on_.thread, frame);
  on_.clean_outputs.OnSkipped(&on_.thread, frame, ObservedTraining::Plain(made));
  EXPECT_EQ(SequenceOf(&on_.thread, frame)->value.ticket, on_.Values()[0].header.ticket);
}

TEST_F(CleanOutputsTest, MakeMemoryGoodAgainThatAnOpHasFilledAnew) {
  const at::Tensor made = Made(kNan);
  Frame& frame = BeginOp("aten::zeros");
  on_.clean_outputs.OnSkipped(&on_.thread, frame, ObservedTraining::Plain(made));
  EXPECT_EQ(on_.bad_values.size(), 0u);
}

}  // namespace
}  // namespace nanwatch
