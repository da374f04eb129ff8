// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/unseen/unread_inputs.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cmath>

#include "shim/check/scan.h"
#include "shim/host/monotonic_clock.h"
#include "shim/observe/python/python_bridge.h"
#include "shim/observe/torch/gradient_path.h"
#include "shim/observe/torch/saved_tensors.h"

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

bool IsResult(const BadOutput* outputs, int count, const PlainTensor& plain) {
  return std::any_of(outputs, outputs + count, [&plain](const BadOutput& output) {
    return output.tensor.storage == plain.storage;
  });
}

// Adds what passes while it lives.
class TimeSpent {
 public:
  explicit TimeSpent(std::atomic<uint64_t>& ns) noexcept : ns_(ns) {}
  TimeSpent(const TimeSpent&) = delete;
  TimeSpent& operator=(const TimeSpent&) = delete;
  ~TimeSpent() { ns_.fetch_add(MonotonicNs() - began_, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t>& ns_;
  const uint64_t began_ = MonotonicNs();
};

bool LookAt(void* context, const at::TensorBase& tensor) {
  auto& looking = *static_cast<Looking*>(context);
  // A number of integers, too: a count of nothing over nothing. What was divided is as large as the
  // result. A bias is not it, which is zero for long.
  const int64_t numel = looking.outputs[0].tensor.view.numel;
  if (!looking.zeros && !(tensor.requires_grad() && tensor.is_leaf())) {
    looking.zeros = IsAllZero(tensor, numel) && tensor.numel() == numel;
  }
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
  if (IsResult(looking.outputs, looking.count, plain)) return true;
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
  const TensorView& result;
  uint64_t bytes = 0;
  bool found = false;
};

// Both lie row by row. Infinite where the number is beyond float32, and the same elsewhere.
bool IsCastOf(const TensorView& result, const TensorView& given) {
  const auto* after = static_cast<const float*>(result.data);
  const auto* before = static_cast<const double*>(given.data);
  for (int64_t i = 0; i < result.numel; ++i) {
    if (!std::isfinite(before[i]) || static_cast<float>(before[i]) != after[i]) return false;
  }
  return true;
}

bool SeekCastFrom(void* context, const at::TensorBase& tensor) {
  auto& seeking = *static_cast<Seeking*>(context);
  PlainTensor plain;
  wire::Unchecked reason;
  if (ReadTensor(tensor, &plain, &reason) != Readable::kYes ||
      plain.view.type != wire::ElementType::kFloat64 || plain.view.numel != seeking.result.numel ||
      !IsRowMajor(plain.view)) {
    return true;
  }
  seeking.bytes += BytesOf(plain.view);
  if (seeking.bytes > UnreadInputs::kBytesMax) return false;
  seeking.found = IsCastOf(seeking.result, plain.view);
  return !seeking.found;
}

struct Search {
  const UnreadInputs::Given& given;
  bool (*came_in)(void* context, const PlainTensor& tensor);
  void* context;
  uint64_t bytes = 0;
  bool any = false;
  bool made_here = false;
};

bool LookForBad(void* context, const at::TensorBase& tensor) {
  auto& search = *static_cast<Search*>(context);
  PlainTensor plain;
  wire::Unchecked reason;
  if (ReadTensor(tensor, &plain, &reason) != Readable::kYes) return true;
  if (IsResult(search.given.outputs, search.given.count, plain)) return true;
  search.bytes += plain.byte_end - plain.byte_begin;
  search.made_here = search.bytes > UnreadInputs::kBytesMax;
  if (!search.made_here && (NonFiniteKinds(plain.view) & search.given.kinds) != 0) {
    search.any = true;
    search.made_here = !search.came_in(search.context, plain);
  }
  return !search.made_here;
}

}  // namespace

bool UnreadInputs::CameIn(const Given& given,
                          bool (*came_in)(void* context, const PlainTensor& tensor),
                          void* context) noexcept {
  if (spent_ns_.load(std::memory_order_relaxed) >= kBudgetNs) return false;
  const TimeSpent spent(spent_ns_);
  Search search{given, came_in, context};
  const bool listed = python_.ForEachLiveTensor(&LookForBad, &search);
  return listed && search.any && !search.made_here;
}

bool UnreadInputs::HoldCastFrom(const BadOutput& output) noexcept {
  const TensorView& view = output.tensor.view;
  if (view.type != wire::ElementType::kFloat32 || output.tensor.gpu >= 0 || !IsRowMajor(view) ||
      spent_on_casts_ns_.load(std::memory_order_relaxed) >= kCastBudgetNs) {
    return false;
  }
  const TimeSpent spent(spent_on_casts_ns_);
  Seeking seeking{view};
  (void)python_.ForEachLiveTensor(&SeekCastFrom, &seeking);
  return seeking.found;
}

UnreadInputs::Seen UnreadInputs::Check(const BadOutput* outputs, int count) noexcept {
  if (spent_ns_.load(std::memory_order_relaxed) >= kBudgetNs) return {};
  const TimeSpent spent(spent_ns_);
  Looking looking{outputs, count};
  const bool node_known = LookAtNode(looking);
  const bool listed = !looking.bad && python_.ForEachLiveTensor(&LookAt, &looking) && node_known;
  if (looking.bad) return {Answer::kBad, looking.zeros};
  return {listed && looking.all_read ? Answer::kFinite : Answer::kUnknown, looking.zeros};
}

}  // namespace nanwatch
