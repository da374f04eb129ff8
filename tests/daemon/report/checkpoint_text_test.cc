// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/checkpoint_text.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

SavedCheckpoint& Add(Verdict& verdict, const char* file, const char* state, int64_t step) {
  SavedCheckpoint& saved = *verdict.add_checkpoints();
  saved.set_file(file);
  saved.set_state(state);
  saved.set_step(step);
  if (saved.state() == "bad") saved.set_first_bad("fc.weight");
  return saved;
}

TEST(CheckpointRows, NameTheLastCleanOneAndTheFirstBadOne) {
  Verdict verdict;
  EXPECT_EQ(CheckpointRows(verdict, 100), "");
  Add(verdict, "1.pt", "clean", 1);
  Add(verdict, "200.pt", "clean", 200);
  EXPECT_EQ(CheckpointRows(verdict, 100),
            "saved     the last clean checkpoint is 200.pt (after 200 steps)\n");
  Add(verdict, "", "clean", 250);
  EXPECT_EQ(CheckpointRows(verdict, 100),
            "saved     the last clean checkpoint is 200.pt (after 200 steps)\n")
      << "what was saved into memory, nobody finds again";
  Add(verdict, "300.pt", "bad", 300).add_kinds("pos_inf");
  Add(verdict, "400.pt", "bad", 400).add_kinds("nan");
  EXPECT_EQ(CheckpointRows(verdict, 100),
            "saved     the last clean checkpoint is 200.pt (after 200 steps)\n"
            "          300.pt (after 300 steps) and 1 more hold Inf, first in fc.weight\n");
}

TEST(CheckpointRows, SayWhereThereIsNoCleanOne) {
  Verdict verdict;
  Add(verdict, "1.pt", "bad", -1).add_kinds("nan");
  EXPECT_EQ(CheckpointRows(verdict, 100),
            "saved     no clean checkpoint was saved\n"
            "          1.pt holds NaN, first in fc.weight\n");
}

TEST(CheckpointRows, SayWhatNobodyKnows) {
  Verdict verdict;
  Add(verdict, "7.pt", "unread", 7).set_on_gpu(true);
  EXPECT_EQ(
      CheckpointRows(verdict, 120),
      "saved     nobody knows whether 7.pt (after 7 steps) is clean: tensors on a GPU are not "
      "read\n");
}

}  // namespace
}  // namespace nanwatch
