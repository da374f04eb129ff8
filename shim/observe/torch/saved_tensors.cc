// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/torch/saved_tensors.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>
#include <typeinfo>
#include <vector>

namespace nanwatch {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;

// One field of a kind of node, or that it has none.
struct Field {
  static constexpr uint16_t kNone = UINT16_MAX;
  const char* node;
  uint16_t offset;
  bool is_list;
};

// The nodes are no standard-layout types, of which alone the standard lets us ask this.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
#define NANWATCH_SAVES(Kind, field) \
  {#Kind, static_cast<uint16_t>(offsetof(torch::autograd::generated::Kind, field)), false},
#define NANWATCH_SAVES_LIST(Kind, field) \
  {#Kind, static_cast<uint16_t>(offsetof(torch::autograd::generated::Kind, field)), true},
#define NANWATCH_SAVES_NOTHING(Kind) {#Kind, Field::kNone, false},
const Field kFields[] = {
#include "shim/observe/torch/saved_fields.inc"
};
#pragma GCC diagnostic pop

// Names a private member: an explicit instantiation may. Before torch 2.7 there is no accessor that
// does not unpack.
template <class Tag, auto kMember>
struct Opened {
  friend constexpr auto MemberOf(Tag) { return kMember; }
};
struct DataTag {
  friend constexpr auto MemberOf(DataTag);
};
struct HooksTag {
  friend constexpr auto MemberOf(HooksTag);
};
template struct Opened<DataTag, &SavedVariable::data_>;
template struct Opened<HooksTag, &SavedVariable::hooks_>;

struct Visit {
  bool (*fn)(void* context, const at::TensorBase& tensor);
  void* context;
  bool all_known = true;

  // False: enough.
  bool Take(const SavedVariable& saved) {
    if (saved.*MemberOf(HooksTag{}) != nullptr) {
      all_known = false;
      return true;
    }
    const at::Tensor& tensor = saved.*MemberOf(DataTag{});
    return !tensor.defined() || fn(context, tensor);
  }
};

// "MulBackward0" of "N5torch8autograd9generated12MulBackward0E"; empty: another kind.
std::string_view GeneratedName(const char* mangled) {
  constexpr std::string_view kBefore = "N5torch8autograd9generated";
  std::string_view name(mangled);
  if (name.substr(0, kBefore.size()) != kBefore || name.back() != 'E') return {};
  name.remove_prefix(kBefore.size());
  name.remove_suffix(1);
  const size_t digits = name.find_first_not_of("0123456789");
  return digits == std::string_view::npos ? std::string_view() : name.substr(digits);
}

constexpr const char* kPythonNode = "N5torch8autograd6PyNodeE";
// Of what was written in place into a view. It copies the gradient.
constexpr const char* kNodeOfViewWrite = "N5torch8autograd10CopySlicesE";

const char* KindOf(const Node& node) {
  const char* mangled = typeid(node).name();
  return *mangled == '*' ? mangled + 1 : mangled;
}

// Kinds that are not generated and save nothing, or in Python.
bool SavesNothing(const char* mangled) {
  for (const char* kind : {kPythonNode, "N5torch8autograd14AccumulateGradE",
                           "N5torch8autograd9GraphRootE", "N5torch8autograd13CopyBackwardsE",
                           "N5torch8autograd13UndefinedGradE", "N5torch8autograd8IdentityE"}) {
    if (std::strcmp(mangled, kind) == 0) return true;
  }
  return false;
}

bool VisitFields(const Node& node, std::string_view name, Visit& visit) {
  const auto* begin = reinterpret_cast<const unsigned char*>(&node);
  bool listed = false;
  for (const Field& field : kFields) {
    if (name != field.node) {
      if (listed) break;  // the fields of a node stand together
      continue;
    }
    listed = true;
    if (field.offset == Field::kNone) break;
    if (!field.is_list) {
      if (!visit.Take(*reinterpret_cast<const SavedVariable*>(begin + field.offset))) break;
      continue;
    }
    const auto& list = *reinterpret_cast<const std::vector<SavedVariable>*>(begin + field.offset);
    for (const SavedVariable& saved : list) {
      if (!visit.Take(saved)) return true;
    }
  }
  return listed;
}

// Of the generated kinds.
Computes ListedAsComputing(std::string_view name) {
  const auto* listed = std::find_if(std::begin(kFields), std::end(kFields),
                                    [name](const Field& field) { return name == field.node; });
  if (listed == std::end(kFields)) return Computes::kUnknown;
  return listed->offset == Field::kNone ? Computes::kNo : Computes::kYes;
}

// Held; what holds a node differs between versions of torch.
auto RunningNode() -> decltype(torch::autograd::get_current_node()) {
  if (torch::autograd::get_current_graph_task_id() == -1) return {};
  return torch::autograd::get_current_node();
}

}  // namespace

bool ForEachSavedTensor(const Node& node, bool (*fn)(void* context, const at::TensorBase& tensor),
                        void* context) noexcept {
  const char* mangled = KindOf(node);
  Visit visit{fn, context};
  const std::string_view name = GeneratedName(mangled);
  if (!name.empty()) return VisitFields(node, name, visit) && visit.all_known;
  // The node inside it is the op's.
  if (std::strcmp(mangled, kNodeOfViewWrite) == 0) {
    const auto& inner = static_cast<const torch::autograd::CopySlices&>(node).fn;
    return inner == nullptr || ForEachSavedTensor(*inner, fn, context);
  }
  return SavesNothing(mangled);
}

Saved IsSavedByRunningNode(const c10::StorageImpl* storage) noexcept {
  const auto node = RunningNode();
  if (node == nullptr) return Saved::kNo;
  struct Search {
    const c10::StorageImpl* storage;
    bool found = false;
  } search{storage};
  const bool all_known = ForEachSavedTensor(
      *node,
      [](void* context, const at::TensorBase& tensor) {
        auto& wanted = *static_cast<Search*>(context);
        const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
        wanted.found =
            impl->has_storage() && impl->unsafe_storage().unsafeGetStorageImpl() == wanted.storage;
        return !wanted.found;
      },
      &search);
  if (search.found) return Saved::kYes;
  return all_known ? Saved::kNo : Saved::kUnknown;
}

Computes ComputesByOps(const Node& node) noexcept {
  const char* mangled = KindOf(node);
  if (const std::string_view name = GeneratedName(mangled); !name.empty()) {
    return ListedAsComputing(name);
  }
  if (std::strcmp(mangled, kPythonNode) == 0) return Computes::kUnknown;
  if (std::strcmp(mangled, kNodeOfViewWrite) == 0) return Computes::kYes;
  return SavesNothing(mangled) ? Computes::kNo : Computes::kUnknown;
}

bool RunsPythonNode() noexcept {
  const auto node = RunningNode();
  return node != nullptr && std::strcmp(KindOf(*node), kPythonNode) == 0;
}

}  // namespace nanwatch
