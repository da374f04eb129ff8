// SPDX-License-Identifier: Apache-2.0
// From a module object to its layer: walks a root's registered modules once, strips wrappers by
// their type, and keeps LayerTable and PythonNames true when modules or parameters are replaced
// later. Everything needs the GIL.
//
// Which root owns a module: the first that was called; a root called later that contains an earlier
// root takes over all of it (model, then a training wrapper around the model). Walking again is
// bounded to 2 % of the time since the last walk, the first eight times aside, because a model may
// make unregistered modules in every forward.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "shim/observe/python/api/python_api.h"
#include "shim/observe/python/names/layer_table.h"

namespace nanwatch {

class PythonNames;
enum class NamedTensorKind : uint8_t;

class ModuleTree {
 public:
  ModuleTree(const PythonApi& api, LayerTable& layers, PythonNames& names) noexcept
      : api_(api), layers_(layers), names_(names) {}

  // The entry for a module called outside of any other. `*is_new` when its root was first seen.
  // Null: it has no name.
  [[nodiscard]] const ModuleEntry* EnterRoot(PyObj* module, bool* is_new);
  // The entry for a module that LayerTable did not find, called within `outermost` (may be null).
  [[nodiscard]] const ModuleEntry* EnterUnknown(PyObj* module, Root* outermost);
  // What `root` holds, noted again. False: it is dead, or was walked too often of late.
  bool WalkAgain(Root& root);
  // The same however often; false where it is dead.
  bool WalkAtLast(Root& root);
  // Whether an entry found for another root than the one being called is still true.
  [[nodiscard]] bool Alive(const Root& root) const noexcept;

  // The strings this uses, and the proof that a weak reference looks as expected. False: unusable.
  [[nodiscard]] bool Prepare(PyObj* module_class, PyObj* tensor_type);

 private:
  struct TypeFacts {
    std::string name;
    const char* wrapped =
        nullptr;  // the attribute that holds the wrapped module; null for no wrapper
    bool optimized = false;
  };
  struct Found {
    PyObj* module;
    std::string path;
    PyObj* parent;   // null for the root
    PyObj* wrapped;  // for a wrapper: the module whose layer it shares
  };
  struct Walk {
    std::vector<Found> found;
    std::unordered_set<PyObj*> seen;
    std::unordered_map<PyObj*, TypeFacts> types;
  };

  [[nodiscard]] const TypeFacts& Facts(Walk& walk, PyObj* type) const;
  [[nodiscard]] PyObj* Own(PyObj* module, PyObj* name) const;
  [[nodiscard]] PyObj* Children(PyObj* module) const;
  [[nodiscard]] PyObj* Unwrap(Walk& walk, PyObj* module) const;
  void Collect(Walk& walk, PyObj* module, const std::string& path, PyObj* parent, int depth) const;
  void TakeOver(const Walk& walk, const Root& root);
  void Publish(Walk& walk, Root& root);
  void AddTensors(PyObj* module, const Layer* layer, NamedTensorKind kind);
  void AddTensor(PyObj* key, PyObj* tensor, const Layer* layer, NamedTensorKind kind);
  void WalkRoot(Root& root, PyObj* module);
  [[nodiscard]] const ModuleEntry* Known(PyObj* module) const noexcept;
  [[nodiscard]] const ModuleEntry* EnterWrapper(Walk& walk, PyObj* module);
  [[nodiscard]] const ModuleEntry* EnterNewRoot(Walk& walk, PyObj* module, bool* is_new);
  [[nodiscard]] bool IsMixin(PyObj* type) const;
  [[nodiscard]] std::string ClassName(PyObj* type, PyObj* bases, ptrdiff_t count) const;
  [[nodiscard]] bool MayWalkAgain(const Root& root) const noexcept;
  [[nodiscard]] bool IsReplica(PyObj* module) const;
  void ForgetDeadRoots();

  const PythonApi& api_;
  LayerTable& layers_;
  PythonNames& names_;
  PyObj* module_class_ = nullptr;
  PyObj* tensor_type_ = nullptr;
  PyObj* modules_name_ = nullptr;
  PyObj* parameters_name_ = nullptr;
  PyObj* buffers_name_ = nullptr;
  PyObj* replica_name_ = nullptr;
};

}  // namespace nanwatch
