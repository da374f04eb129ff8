// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/checkpoint_text.h"

#include "daemon/report/incident_words.h"
#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

constexpr size_t kFileColumnsMax = 100;

// "ckpt/400.pt (after 400 steps)".
std::string FileText(const SavedCheckpoint& saved) {
  std::string text = saved.file().empty() ? "a checkpoint without a file's name"
                                          : Shorten(Printable(saved.file()), kFileColumnsMax);
  if (saved.step() >= 0)
    text += " (after " + Counted(static_cast<uint64_t>(saved.step()), "step") + ")";
  return text;
}

std::string KindsText(const SavedCheckpoint& saved) {
  bool nan = false;
  bool inf = false;
  for (const std::string& kind : saved.kinds()) (kind == "nan" ? nan : inf) = true;
  return nan && inf ? "NaN and Inf" : inf ? "Inf" : "NaN";
}

// How many have this state, and the first or the last of them. One with a file's name is found
// again; one that was saved into memory is not.
struct OfState {
  uint64_t count = 0;
  const SavedCheckpoint* first = nullptr;
  const SavedCheckpoint* last = nullptr;
};

OfState Find(const Verdict& verdict, const char* state) {
  OfState found;
  for (const SavedCheckpoint& saved : verdict.checkpoints()) {
    if (saved.state() != state) continue;
    if (found.count++ == 0) found.first = &saved;
    const bool is_worse = saved.file().empty() && found.last != nullptr;
    if (!is_worse) found.last = &saved;
  }
  return found;
}

std::string CleanText(const OfState& clean) {
  if (clean.count == 0) return "no clean checkpoint was saved";
  return "the last clean checkpoint is " + FileText(*clean.last);
}

std::string BadText(const OfState& bad) {
  const SavedCheckpoint& first = *bad.first;
  const uint64_t more = bad.count - 1;
  std::string text = FileText(first);
  if (more > 0) text += " and " + std::to_string(more) + " more";
  text += (more > 0 ? " hold " : " holds ") + KindsText(first);
  if (!first.first_bad().empty()) text += ", first in " + Printable(first.first_bad());
  return text;
}

std::string UnreadText(const OfState& unread) {
  const bool on_gpu = unread.last->on_gpu();
  return "nobody knows whether " + FileText(*unread.last) + " is clean: " +
         (on_gpu ? "tensors on a GPU are not read" : "not all of its tensors could be read");
}

}  // namespace

std::string CheckpointRows(const Verdict& verdict, int width_columns) {
  if (verdict.checkpoints().empty()) return "";
  const OfState bad = Find(verdict, "bad");
  const OfState unread = Find(verdict, "unread");
  const OfState clean = Find(verdict, "clean");
  std::string rows;
  const auto add = [&](const std::string& text) {
    rows += Row(rows.empty() ? "saved" : "", text, width_columns);
  };
  // Where one was not read, it may be clean.
  if (clean.count > 0 || unread.count == 0) add(CleanText(clean));
  if (bad.count > 0) add(BadText(bad));
  if (unread.count > 0) add(UnreadText(unread));
  return rows;
}

}  // namespace nanwatch
