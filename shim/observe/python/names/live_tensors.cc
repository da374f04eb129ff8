// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/names/live_tensors.h"

#include <exception>

#include "shim/observe/python/api/gil_thread.h"
#include "shim/observe/python/names/python_names.h"

namespace nanwatch {
namespace {

// The list itself is an object that the collector follows: making it may set off a collection, and
// that would run the program's finalizers inside an op.
class NoCollection {
 public:
  explicit NoCollection(const PythonApi& api) : api_(api), was_on_(api.PyGC_Disable() != 0) {}
  ~NoCollection() {
    if (was_on_) api_.PyGC_Enable();
  }
  NoCollection(const NoCollection&) = delete;
  NoCollection& operator=(const NoCollection&) = delete;

 private:
  const PythonApi& api_;
  bool was_on_;
};

struct Walk {
  const PythonApi& api;
  PythonNames& names;
  PyObj* tensor_type;
  bool (*fn)(void* context, const at::TensorBase& tensor);
  void* context;
  bool listed = false;
};

// Whether gc.freeze() has put objects where gc.get_objects() does not list them.
bool HasFrozen(const PythonApi& api, PyObj* collector) {
  const PyOwned get_count(api, api.AttributeOrNull(collector, "get_freeze_count"));
  if (!get_count) return true;
  const PyOwned count(
      api, api.PyObject_CallFunctionObjArgs(get_count.get(), static_cast<PyObj*>(nullptr)));
  if (!count) api.PyErr_Clear();
  return !count || api.PyObject_IsTrue(count.get()) != 0;
}

// GIL held.
bool WalkAll(const Walk& walk) {
  const PythonApi& api = walk.api;
  PyObj* collector = api.LoadedModule("gc");  // torch imports it
  if (collector == nullptr) return false;
  if (HasFrozen(api, collector)) return false;
  const NoCollection no_collection(api);
  const PyOwned get_objects(api, api.AttributeOrNull(collector, "get_objects"));
  if (!get_objects) return false;
  const PyOwned objects(
      api, api.PyObject_CallFunctionObjArgs(get_objects.get(), static_cast<PyObj*>(nullptr)));
  if (!objects) {
    api.PyErr_Clear();
    return false;
  }
  if (!api.HasFlag(objects.get(), kPyFlagList)) return false;
  const ptrdiff_t count = api.PyList_Size(objects.get());
  for (ptrdiff_t i = 0; i < count; ++i) {
    PyObj* object = api.PyList_GetItem(objects.get(), i);
    if (object == nullptr || api.PyType_IsSubtype(object->type, walk.tensor_type) == 0) continue;
    const at::TensorBase* tensor = walk.names.TensorOf(object);
    // Null in an object whose memory was cleared and that is not made yet.
    if (tensor == nullptr || tensor->unsafeGetTensorImpl() == nullptr) continue;
    if (!walk.fn(walk.context, *tensor)) break;
  }
  return true;
}

}  // namespace

bool ForEachLiveTensor(const PythonApi& api, PythonNames& names, PyObj* tensor_type,
                       bool (*fn)(void* context, const at::TensorBase& tensor),
                       void* context) noexcept {
  constexpr int kPatienceMs = 1000;  // of a busy machine; UnreadInputs bounds the sum
  if (!api.Running() || api.PyGILState_GetThisThreadState() == nullptr) return false;
  Walk walk{api, names, tensor_type, fn, context};
  const auto run = [](void* shared) {
    auto& mine = *static_cast<Walk*>(shared);
    try {
      mine.listed = WalkAll(mine);
    } catch (const std::exception&) {
      mine.listed = false;
    }
  };
  return CallWithGil(api, kPatienceMs, run, &walk) && walk.listed;
}

}  // namespace nanwatch
