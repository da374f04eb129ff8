// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/unread_inputs.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <limits>

#include "shim/check/scan.h"
#include "shim/host/monotonic_clock.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/torch/gradient_path.h"
#include "shim/observe/torch/saved_tensors.h"
#include "shim/observe/torch/tensor_stats.h"

namespace nanwatch {
namespace {

struct Looking {
  const BadOutput* outputs;
  int count;
  uint64_t bytes = 0;
  bool bad = false;
  bool all_read = true;
  bool zeros = false;
};

bool IsResult(const Looking& looking, const PlainTensor& plain) {
  for (int i = 0; i < looking.count; ++i) {
    if (looking.outputs[i].tensor.storage == plain.storage) return true;
  }
  return false;
}

bool LookAt(void* context, const at::TensorBase& tensor) {
  auto& looking = *static_cast<Looking*>(context);
  // A number of integers, too: a count of nothing over nothing. What is larger than the result is
  // not what was divided.
  if (!looking.zeros) looking.zeros = IsAllZero(tensor, looking.outputs[0].tensor.view.numel);
  PlainTensor plain;
  wire::Unchecked reason;
  switch (ReadTensor(tensor, &plain, &reason)) {
    case Readable::kNothing:
      return true;
    case Readable::kNo:
      looking.all_read = false;
      return true;
    case Readable::kYes:
      break;
  }
  if (IsResult(looking, plain)) return true;
  const uint64_t bytes = plain.byte_end - plain.byte_begin;
  if (bytes > UnreadInputs::kBytesMax - looking.bytes) {
    looking.all_read = false;
    return true;
  }
  looking.bytes += bytes;
  looking.bad = NonFiniteKinds(plain.view) != 0;
  return !looking.bad;
}

// In a backward pass: what the node that runs has saved, and whether the gradients that it was
// handed are known to be results of ops.
bool LookAtNode(Looking& looking) {
  if (torch::autograd::get_current_graph_task_id() == -1) return true;
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) return true;
  if (!GradientsComeFromOps()) looking.all_read = false;
  return ForEachSavedTensor(*node, &LookAt, &looking);
}

struct Seeking {
  int64_t elements;
  bool found = false;
};

bool SeekTooLarge(void* context, const at::TensorBase& tensor) {
  auto& seeking = *static_cast<Seeking*>(context);
  PlainTensor plain;
  wire::Unchecked reason;
  if (ReadTensor(tensor, &plain, &reason) != Readable::kYes ||
      plain.view.type != wire::ElementType::kFloat64 || plain.view.numel != seeking.elements ||
      NonFiniteKinds(plain.view) != 0) {
    return true;
  }
  wire::TensorStats stats{};
  FillStats(plain.view, 0, &stats);
  seeking.found =
      std::max(-stats.finite_min, stats.finite_max) > double{std::numeric_limits<float>::max()};
  return !seeking.found;
}

}  // namespace

bool UnreadInputs::HoldTooLarge(const BadOutput& output) noexcept {
  const TensorView& view = output.tensor.view;
  if (view.type != wire::ElementType::kFloat32 || BytesOf(view) > kBytesMax ||
      spent_ns_.load(std::memory_order_relaxed) >= kBudgetNs) {
    return false;
  }
  const uint64_t began = MonotonicNs();
  Seeking seeking{view.numel};
  (void)python_.ForEachLiveTensor(&SeekTooLarge, &seeking);
  spent_ns_.fetch_add(MonotonicNs() - began, std::memory_order_relaxed);
  return seeking.found;
}

UnreadInputs::Seen UnreadInputs::Check(const BadOutput* outputs, int count) noexcept {
  if (spent_ns_.load(std::memory_order_relaxed) >= kBudgetNs) return {};
  const uint64_t began = MonotonicNs();
  Looking looking{outputs, count};
  const bool node_known = LookAtNode(looking);
  const bool listed = !looking.bad && python_.ForEachLiveTensor(&LookAt, &looking) && node_known;
  spent_ns_.fetch_add(MonotonicNs() - began, std::memory_order_relaxed);
  if (looking.bad) return {Answer::kBad, looking.zeros};
  return {listed && looking.all_read ? Answer::kFinite : Answer::kUnknown, looking.zeros};
}

}  // namespace nanwatch
