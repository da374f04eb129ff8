// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/names/module_tree.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "shim/host/monotonic_clock.h"
#include "shim/observe/python/names/class_id.h"
#include "shim/observe/python/names/local_tensor.h"
#include "shim/observe/python/names/python_names.h"
#include "shim/observe/python/names/script_views.h"

namespace nanwatch {
namespace {

constexpr int kNestingMax = 200;
constexpr int kWrappersMax = 8;
constexpr uint32_t kFreeWalks = 8;  // walks of a root that need no patience
constexpr uint64_t kPatienceFactor =
    50;  // then a walk may cost a fiftieth of the time since the last one

struct Wrapper {
  const char* module;
  const char* class_name;
  const char* wrapped;  // the name of the wrapped module among the wrapper's children
  bool optimized;
};
constexpr Wrapper kWrappers[] = {
    {"torch.nn.parallel.distributed", "DistributedDataParallel", "module", false},
    {"torch.nn.parallel.data_parallel", "DataParallel", "module", false},
    {"torch._dynamo.eval_frame", "OptimizedModule", "_orig_mod", true},
    {"torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel",
     "_fsdp_wrapped_module", false},
    // The base of CheckpointWrapper and OffloadWrapper.
    {"torch.distributed.algorithms._checkpoint.checkpoint_wrapper", "ActivationWrapper",
     "_checkpoint_wrapped_module", false},
};

// What a library mixes in when it gives a module a class of its own making: fully_shard turns a
// Linear into an FSDPLinear(FSDPModule, Linear), and its user still has a Linear.
struct Mixin {
  const char* module;
  const char* class_name;
};
constexpr Mixin kMixins[] = {
    {"torch.distributed.fsdp", "FSDPModule"},
    {"torch.distributed._composable.replicate_with_fsdp", "ReplicateModule"},
    {"torch.distributed._composable.replicate", "DDP"},
};

}  // namespace

bool ModuleTree::Prepare(PyObj* module_class, PyObj* tensor_type) {
  module_class_ = module_class;
  tensor_type_ = tensor_type;
  modules_name_ = api_.PyUnicode_InternFromString("_modules");
  parameters_name_ = api_.PyUnicode_InternFromString("_parameters");
  buffers_name_ = api_.PyUnicode_InternFromString("_buffers");
  replica_name_ = api_.PyUnicode_InternFromString("_is_replica");
  const PyOwned weak(api_, api_.PyWeakref_NewRef(module_class, nullptr));
  if (!weak) api_.PyErr_Clear();
  return weak && PythonApi::WeakReferent(weak.get()) == module_class && modules_name_ != nullptr &&
         parameters_name_ != nullptr && buffers_name_ != nullptr && replica_name_ != nullptr;
}

bool ModuleTree::Alive(const Root& root) const noexcept {
  return root.weak == nullptr || PythonApi::WeakReferent(root.weak) == root.module;
}

const ModuleEntry* ModuleTree::Known(PyObj* module) const noexcept {
  const ModuleEntry* entry = layers_.Find(module);
  const bool valid = entry != nullptr && entry->layer != nullptr && entry->type == module->type &&
                     Alive(*entry->root);
  return valid ? entry : nullptr;
}

const ModuleEntry* ModuleTree::EnterRoot(PyObj* module, bool* is_new) {
  *is_new = false;
  const ModuleEntry* known = Known(module);
  if (known != nullptr && known->wrapped != nullptr) {
    // Wrappers come and go (torch.compile(model)(x)), so that the address may be another wrapper's
    // by now.
    Walk walk;
    if (Unwrap(walk, module) != known->wrapped) known = nullptr;
  }
  if (known != nullptr) {
    Root& root = *known->root;
    if (!names_.Moved(root) || !MayWalkAgain(root)) return known;
    WalkRoot(root, root.module);
    return Known(module);
  }
  if (api_.PyType_IsSubtype(module->type, module_class_) == 0 || IsReplica(module)) return nullptr;
  Walk walk;
  if (const ModuleEntry* wrapper = EnterWrapper(walk, module)) return wrapper;
  return EnterNewRoot(walk, module, is_new);
}

bool ModuleTree::WalkAgain(Root& root) { return MayWalkAgain(root) && WalkAtLast(root); }

bool ModuleTree::WalkAtLast(Root& root) {
  if (!Alive(root)) return false;
  WalkRoot(root, root.module);
  return true;
}

const ModuleEntry* ModuleTree::EnterNewRoot(Walk& walk, PyObj* module, bool* is_new) {
  ForgetDeadRoots();
  PyObj* inner = Unwrap(walk, module);
  Root* root = layers_.NewRoot(Facts(walk, inner->type).name);
  root->module = inner;
  root->weak = api_.PyWeakref_NewRef(inner, nullptr);
  if (root->weak == nullptr)
    api_.PyErr_Clear();  // a class with __slots__: its death goes unnoticed
  WalkRoot(*root, module);
  *is_new = true;
  return Known(module);
}

const ModuleEntry* ModuleTree::EnterUnknown(PyObj* module, Root* outermost) {
  if (outermost != nullptr && WalkAgain(*outermost)) {
    if (const ModuleEntry* known = Known(module)) return known;
  }
  Walk walk;
  if (const ModuleEntry* wrapper = EnterWrapper(walk, module)) return wrapper;
  layers_.Put({.module = module, .type = module->type, .layer = nullptr, .root = outermost});
  return layers_.Find(module);
}

// A wrapper around a module that is known shares its layer.
const ModuleEntry* ModuleTree::EnterWrapper(Walk& walk, PyObj* module) {
  PyObj* inner = Unwrap(walk, module);
  const ModuleEntry* known = inner == module ? nullptr : Known(inner);
  if (known == nullptr) return nullptr;
  layers_.Put({.module = module,
               .type = module->type,
               .layer = known->layer,
               .root = known->root,
               .wrapped = inner,
               .optimized = Facts(walk, module->type).optimized});
  return layers_.Find(module);
}

bool ModuleTree::IsMixin(PyObj* type) const {
  const ClassId id(api_, type);
  return std::any_of(std::begin(kMixins), std::end(kMixins),
                     [&id](const Mixin& mixin) { return id.Is(mixin.module, mixin.class_name); });
}

// `bases` is the class's __mro__ of `count` entries: the class itself, mixed-in ones, the user's.
std::string ModuleTree::ClassName(PyObj* type, PyObj* bases, ptrdiff_t count) const {
  ptrdiff_t mixed_in = 0;
  while (mixed_in + 1 < count && IsMixin(api_.PyTuple_GetItem(bases, mixed_in + 1))) ++mixed_in;
  if (mixed_in > 0 && mixed_in + 1 < count) type = api_.PyTuple_GetItem(bases, mixed_in + 1);
  const PyOwned name(api_, api_.AttributeOrNull(type, "__name__"));
  const char* text = name ? api_.Text(name.get()) : nullptr;
  return text == nullptr ? "" : text;
}

const ModuleTree::TypeFacts& ModuleTree::Facts(Walk& walk, PyObj* type) const {
  const auto known = walk.types.find(type);
  if (known != walk.types.end()) return known->second;
  TypeFacts facts;
  const PyOwned bases(api_, api_.AttributeOrNull(type, "__mro__"));
  const ptrdiff_t count =
      bases && api_.HasFlag(bases.get(), kPyFlagTuple) ? api_.PyTuple_Size(bases.get()) : 0;
  facts.name = ClassName(type, bases.get(), count);
  for (ptrdiff_t i = 0; i < count && facts.wrapped == nullptr; ++i) {
    PyObj* base = api_.PyTuple_GetItem(bases.get(), i);
    const ClassId id(api_, base);
    for (const Wrapper& wrapper : kWrappers) {
      if (!id.Is(wrapper.module, wrapper.class_name)) continue;
      facts.wrapped = wrapper.wrapped;
      facts.optimized = wrapper.optimized;
    }
  }
  return walk.types.emplace(type, std::move(facts)).first->second;
}

// An attribute of the module's own, borrowed from it: GenericGetAttr passes by __getattr__, which
// some modules forward. Null: there is none.
PyObj* ModuleTree::Own(PyObj* module, PyObj* name) const {
  const PyOwned value(api_, api_.PyObject_GenericGetAttr(module, name));
  if (!value) api_.PyErr_Clear();
  return value.get();
}

PyObj* ModuleTree::Children(PyObj* module) const {
  PyObj* children = Own(module, modules_name_);
  if (children == nullptr || api_.HasFlag(children, kPyFlagDict)) return children;
  return script_views::ModulesBehind(api_, children);
}

PyObj* ModuleTree::Unwrap(Walk& walk, PyObj* module) const {
  for (int i = 0; i < kWrappersMax; ++i) {
    const char* wrapped = Facts(walk, module->type).wrapped;
    PyObj* children = wrapped == nullptr ? nullptr : Children(module);
    PyObj* inner = children == nullptr ? nullptr : api_.PyDict_GetItemString(children, wrapped);
    if (inner == nullptr || inner == api_.none) break;
    module = inner;
  }
  return module;
}

// As named_modules() goes, so that a module with several names gets the same one.
void ModuleTree::Collect(Walk& walk, PyObj* module, const std::string& path, PyObj* parent,
                         int depth) const {
  if (depth > kNestingMax || !walk.seen.insert(module).second) return;
  PyObj* inner = Unwrap(walk, module);
  walk.found.push_back({module, path, parent, inner == module ? nullptr : inner});
  PyObj* children = Children(module);
  if (children == nullptr) return;
  const char* wrapped = Facts(walk, module->type).wrapped;
  ptrdiff_t position = 0;
  PyObj* key = nullptr;
  PyObj* child = nullptr;
  while (api_.PyDict_Next(children, &position, &key, &child) != 0) {
    const char* name = api_.Text(key);
    if (name == nullptr || child == api_.none) continue;
    if (wrapped != nullptr && strcmp(name, wrapped) == 0) {
      Collect(walk, child, path, parent, depth + 1);
    } else {
      Collect(walk, child, path.empty() ? std::string(name) : path + "." + name, module, depth + 1);
    }
  }
}

// Roots that this one contains are roots no more.
void ModuleTree::TakeOver(const Walk& walk, const Root& root) {
  const std::vector<Root*> roots = layers_.roots();
  for (Root* other : roots) {
    if (other == &root || !walk.seen.contains(other->module)) continue;
    names_.ForgetRoot(other->layer);
    layers_.RemoveRoot(other);
  }
}

void ModuleTree::Publish(Walk& walk, Root& root) {
  TakeOver(walk, root);
  layers_.Forget(&root, false);
  if (root.layer != nullptr) names_.ForgetRoot(root.layer);
  for (const Found& found : walk.found) {
    if (found.wrapped != nullptr || Known(found.module) != nullptr)
      continue;  // another root's keeps its name
    const ModuleEntry* parent = found.parent == nullptr ? nullptr : layers_.Find(found.parent);
    const Layer* layer = layers_.Intern(root, found.path, Facts(walk, found.module->type).name,
                                        parent == nullptr ? nullptr : parent->layer);
    if (root.layer == nullptr) root.layer = layer;
    layers_.Put(
        {.module = found.module, .type = found.module->type, .layer = layer, .root = &root});
    AddTensors(found.module, layer, NamedTensorKind::kParameter);
    AddTensors(found.module, layer, NamedTensorKind::kBuffer);
  }
  root.tensors = names_.TensorsOf(root.layer);
  for (const Found& found : walk.found) {
    if (found.wrapped != nullptr) static_cast<void>(EnterWrapper(walk, found.module));
  }
}

void ModuleTree::AddTensors(PyObj* module, const Layer* layer, NamedTensorKind kind) {
  PyObj* tensors =
      Own(module, kind == NamedTensorKind::kParameter ? parameters_name_ : buffers_name_);
  if (tensors == nullptr) return;
  if (!api_.HasFlag(tensors, kPyFlagDict)) {
    const PyOwned pairs(api_, script_views::TensorsBehind(api_, tensors));
    if (!pairs) return;
    for (size_t i = 0; PyObj* pair = api_.ItemOf(pairs.get(), i); ++i) {
      PyObj* tensor = api_.ItemOf(pair, 1);
      if (tensor != nullptr) AddTensor(api_.ItemOf(pair, 0), tensor, layer, kind);
    }
    return;
  }
  ptrdiff_t position = 0;
  PyObj* key = nullptr;
  PyObj* tensor = nullptr;
  while (api_.PyDict_Next(tensors, &position, &key, &tensor) != 0) {
    AddTensor(key, tensor, layer, kind);
  }
}

void ModuleTree::AddTensor(PyObj* key, PyObj* tensor, const Layer* layer, NamedTensorKind kind) {
  const char* name = api_.Text(key);
  if (name == nullptr || api_.PyType_IsSubtype(tensor->type, tensor_type_) == 0) return;
  // functional_call puts plain tensors in the place of parameters. TorchScript's are plain.
  const bool is_special = kind == NamedTensorKind::kParameter && tensor->type != tensor_type_;
  if (is_special) names_.SetParameterType(tensor->type);
  const at::TensorBase* held = names_.TensorOf(tensor);
  if (held != nullptr) names_.Add(layer, name, kind, *held, LocalOf(api_, names_, *held));
}

void ModuleTree::WalkRoot(Root& root, PyObj* module) {
  const uint64_t begin = MonotonicNs();
  Walk walk;
  Collect(walk, module, "", nullptr, 0);
  Publish(walk, root);
  root.rescan_end_ns = MonotonicNs();
  root.rescan_cost_ns = root.rescan_end_ns - begin;
  ++root.rescans;
}

bool ModuleTree::MayWalkAgain(const Root& root) const noexcept {
  return root.rescans < kFreeWalks ||
         MonotonicNs() - root.rescan_end_ns > kPatienceFactor * root.rescan_cost_ns;
}

// DataParallel copies its module for every forward; such a copy is nobody's layer.
bool ModuleTree::IsReplica(PyObj* module) const {
  const PyOwned value(api_, api_.PyObject_GenericGetAttr(module, replica_name_));
  if (!value) api_.PyErr_Clear();
  return static_cast<bool>(value);
}

void ModuleTree::ForgetDeadRoots() {
  const std::vector<Root*> roots = layers_.roots();
  for (Root* root : roots) {
    if (Alive(*root)) continue;
    if (root->layer != nullptr) names_.ForgetRoot(root->layer);
    layers_.RemoveRoot(root);
  }
}

}  // namespace nanwatch
