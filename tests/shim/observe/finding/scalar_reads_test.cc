// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/finding/scalar_reads.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "proto/wire/escape_flags.h"
#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ScalarReadsTest : public testing::Test {
 protected:
  // A bad value of this op, of one element if not said otherwise.
  ValueRef Made(uint32_t op, uint32_t flags, const at::Tensor& tensor) {
    RecentValues::Kept kept{};
    kept.record.header.kind = static_cast<uint16_t>(wire::RecordKind::kValue);
    kept.record.header.bytes = sizeof kept.record;
    kept.record.header.ticket = on_.emitter.DrawTicket();
    kept.record.flags = flags;
    kept.op = op;
    kept.written = true;
    const ValueRef value = on_.recent.Add(kept);
    const BadOutput output{ObservedTraining::Plain(tensor), 0, false};
    on_.known_bad.Remember(&output, 1, {.value = value, .site = 1, .written = Written{}});
    return value;
  }
  Frame& Reads(const char* op, const at::Tensor& tensor) {
    Frame& frame = on_.thread.frames[0];
    frame = Frame{};
    frame.op = &on_.Op(op);
    frame.sequence = -1;
    frame.inputs_seen = true;
    frame.inputs_count = 1;
    InputSeen& input = on_.thread.inputs[0];
    input = InputSeen{};
    const PlainTensor plain = ObservedTraining::Plain(tensor);
    input.Copy(plain);
    input.kinds = wire::kHasNan;
    input.known = on_.known_bad.Find(plain, &input.bad);
    return frame;
  }
  std::vector<wire::EscapeRecord> Escapes() {
    return on_.Emitted<wire::EscapeRecord>(wire::RecordKind::kEscape);
  }

  ObservedTraining on_;
  at::Tensor number_ = at::full({1}, kNan);
  at::Tensor many_ = at::full({3}, kNan);
};

TEST_F(ScalarReadsTest, RecordANumberWithTheValueItCameFrom) {
  const ValueRef made = Made(1, 0, number_);
  on_.scalar_reads.OnRead(&on_.thread, Reads("aten::_local_scalar_dense", number_), kNan);
  ASSERT_EQ(Escapes().size(), 1u);
  EXPECT_EQ(Escapes()[0].source.value, made.ticket);
  EXPECT_TRUE(std::isnan(Escapes()[0].value));
  EXPECT_EQ(Escapes()[0].flags & wire::kMayBeLoss, 0u);
  EXPECT_TRUE(on_.read_numbers.HasAny());
}

TEST_F(ScalarReadsTest, TakeAValueThatPassesBeginAtForALoss) {
  on_.loss_roots.Record(1, 0);
  Made(1, wire::ValueRecord::kNeedsGradient, number_);
  on_.scalar_reads.OnRead(&on_.thread, Reads("aten::_local_scalar_dense", number_), kNan);
  ASSERT_EQ(Escapes().size(), 1u);
  EXPECT_NE(Escapes()[0].flags & wire::kMayBeLoss, 0u);
}

TEST_F(ScalarReadsTest, TakeAMetricOfTheSameOpForNone) {
  on_.loss_roots.Record(1, 0);
  Made(1, 0, number_);
  on_.scalar_reads.OnRead(&on_.thread, Reads("aten::_local_scalar_dense", number_), kNan);
  EXPECT_EQ(Escapes()[0].flags & wire::kMayBeLoss, 0u);
}

TEST_F(ScalarReadsTest, RecordTheFirstReadsOfAPlaceAlone) {
  Made(1, 0, number_);
  for (int i = 0; i < 5; ++i) {
    on_.scalar_reads.OnRead(&on_.thread, Reads("aten::_local_scalar_dense", number_), kNan);
  }
  EXPECT_EQ(Escapes().size(), size_t{kFullRecordsPerSite});
}

TEST_F(ScalarReadsTest, RecordAComparedLoss) {
  on_.loss_roots.Record(1, 0);
  Made(1, wire::ValueRecord::kNeedsGradient, number_);
  on_.scalar_reads.OnCompared(&on_.thread, Reads("aten::isnan", number_), on_.emitter);
  EXPECT_EQ(Escapes().size(), 1u);
}

TEST_F(ScalarReadsTest, RecordThatANormIsAskedWhetherItIsFinite) {
  Made(1, 0, number_);
  on_.scalar_reads.OnCompared(&on_.thread, Reads("aten::isnan", number_), on_.emitter);
  ASSERT_EQ(Escapes().size(), 1u);
  EXPECT_EQ(Escapes()[0].flags, wire::kAskedOnly);
}

TEST_F(ScalarReadsTest, DoNotCallAComparedActivationALoss) {
  on_.loss_roots.Record(1, 0);
  Made(1, wire::ValueRecord::kNeedsGradient, many_);
  on_.scalar_reads.OnCompared(&on_.thread, Reads("aten::isnan", many_), on_.emitter);
  Made(2, wire::ValueRecord::kNeedsGradient, number_);
  on_.scalar_reads.OnCompared(&on_.thread, Reads("aten::isnan", number_), on_.emitter);
  EXPECT_TRUE(Escapes().empty());
}

TEST_F(ScalarReadsTest, RecordATensorThatIsNanThroughoutAsReadWithOthers) {
  Made(1, 0, many_);
  on_.scalar_reads.OnReadAll(&on_.thread, Reads("aten::detach", many_));
  ASSERT_EQ(Escapes().size(), 1u);
  EXPECT_NE(Escapes()[0].flags & wire::kReadWithOthers, 0u);
}

TEST_F(ScalarReadsTest, TakeOneNanAmongNumbersForWhatIsMissing) {
  Made(1, 0, many_);
  many_[1] = 5;
  on_.scalar_reads.OnReadAll(&on_.thread, Reads("aten::detach", many_));
  EXPECT_TRUE(Escapes().empty());
}

}  // namespace
}  // namespace nanwatch
