// SPDX-License-Identifier: Apache-2.0
// Rows that earlier versions wrote: a database keeps them for years, so what they say must not change.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <charconv>
#include <string>
#include <string_view>

#include "verdict.pb.h"

namespace nanwatch {
namespace {

std::string Bytes(std::string_view hex) {
  std::string bytes(hex.size() / 2, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    unsigned byte = 0;
    std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, byte, 16);
    bytes[i] = static_cast<char>(byte);
  }
  return bytes;
}

// The bytes are a message that says `text`, and nothing that has no name any more.
template <typename Message>
void ExpectRead(std::string_view hex, const std::string& text) {
  Message stored;
  Message expected;
  ASSERT_TRUE(stored.ParseFromString(Bytes(hex)));
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &expected));
  EXPECT_EQ(stored.DebugString(), expected.DebugString());
}

TEST(StoredMessages, ThatWereWrittenBeforeSayWhatTheySaid) {
  ExpectRead<nanwatch::Run>(
      "09aa0000000000000012016a1a0168280739040000000000000058017a06322e31312e30920108747261"
      "696e2e7079a00105c2010c6f703d6174656e3a3a6c6f67d00101",
      R"(nonce: 170 job: "j" host: "h" pid: 7 pid_namespace: 4 rank: 1 torch_version: )"
      R"("2.11.0" command: "train.py" started_real_ns: 5 ignore: "op=aten::log" late: )"
      R"(true)");
  ExpectRead<nanwatch::RunState>(
      "106428035a02010272050a0104380179000000000000e03f980101b80106c00109ca010108c102000000"
      "000000f83fd80202e00201",
      R"(ops_seen: 100 values_bad: 3 unchecked: 1 unchecked: 2 clocks { optimizer_steps: )"
      R"(4 optimizer_count: 1 } loss: 0.5 exit_code: 1 holes: 6 records_thinned: 9 )"
      R"(steps_watched: 8 overhead_percent: 1.5 steps_off: 2 off_now: true)");
  ExpectRead<nanwatch::Site>(
      "080312096174656e3a3a6c6f671a046865616440016a0177780b92010220029a0106612e70793a31",
      R"(id: 3 op: "aten::log" layer: "head" phase: 1 param: "w" first_ticket: 11 )"
      R"(last_clocks { passes: 2 } callers: "a.py:1")");
  ExpectRead<nanwatch::Record>(
      "080b220210025226080332040801384c3a14080230083801590000000000000040720108784d4a060a02"
      "31371004",
      R"(ticket: 11 clocks { optimizer_ranges: 2 } value { site: 3 sources { kind: 1 )"
      R"(value: 76 } outputs { element_type: 2 numel: 8 nan: 1 finite_max: 2 shape: 8 )"
      R"(value: 77 } samples { indices: "17" of_batch: 4 } })");
  ExpectRead<nanwatch::Record>(
      "080ca2010f084d22050a016b18092a0408013001",
      R"(ticket: 12 kernels { value: 77 kernels { name: "k" nanoseconds: 9 } records { )"
      R"(buffers: 1 yielded: true } })");
  ExpectRead<nanwatch::StepSummary>(
      "080421000000000000d03f61000000000000f83f880102990100000000004ced40a201086174656e3a3a"
      "6d6db00103",
      R"(index: 4 loss: 0.25 gradient_norm: 1.5 gradients_bad: 2 near_largest: 60000 )"
      R"(near_op: "aten::mm" near_type: 3)");
  ExpectRead<nanwatch::StatsSnapshot>(
      "08072a044164616d521b0a017759000000000000004078088101000000000000e03f8801015a110a0468"
      "6561642100000000000008402801",
      R"(number: 7 optimizer_class: "Adam" parameters { name: "w" gradient_norm: 2 )"
      R"(sampled: 8 eps: 0.5 fused: true } layers { layer: "head" largest: 3 at_least: )"
      R"(true })");
  ExpectRead<nanwatch::TrainingHistory>(
      "0809121a08011a0c0a08000000000000e03f10035a080a046865616410021a090900000000000090404a"
      "06080512020802520919000000000000f83f5a020803",
      R"(next_index: 9 optimizers { optimizer: 1 loss { recent: 0.5 count: 3 } dead { )"
      R"(name: "head" snapshots: 2 } } scaler { scale: 1024 } cycles { ranges: 5 slots { )"
      R"(count: 2 } } dead { loss: 1.5 } recent { updates: 3 })");
  ExpectRead<nanwatch::Incident>(
      "0a056572726f7212180a026f7020012a096174656e3a3a6c6f6760119a0102280422046c6f73732a110a"
      "0f6c6f672d6f662d6e656761746976653002880101920108000000000000e03f",
      R"(severity: "error" origin { kind: "op" exact: true op: "aten::log" step: 17 )"
      R"(outputs { nan: 4 } } reach: "loss" pattern { id: "log-of-negative" } count: 2 )"
      R"(ended_job: true losses_before: 0.5)");
  ExpectRead<nanwatch::Warning>(
      "0a067363616c6572180c52100a057363616c651100000000000000405a02616172067363616c6572",
      R"(id: "scaler" step: 12 numbers { key: "scale" value: 2 } run: "aa" family: )"
      R"("scaler")");
}

}  // namespace
}  // namespace nanwatch
