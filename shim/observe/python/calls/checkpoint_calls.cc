// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/calls/checkpoint_calls.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <iterator>

namespace nanwatch {
namespace {

// A function of ours has no room for a pointer. There is one bridge per process.
CheckpointCalls* checkpoint_calls_of_process = nullptr;

struct SaveFunction {
  const char* module;
  const char* name;
};
constexpr SaveFunction kSaves[] = {{"torch.serialization", "save"},
                                   {"safetensors.torch", "save_file"},
                                   {"torch.distributed.checkpoint.state_dict_saver", "save"}};
// How these call what is saved, and where to.
constexpr const char* kObjectNames[] = {"obj", "tensors", "state_dict"};
constexpr const char* kFileNames[] = {"f", "filename", "checkpoint_id"};

// `from torch import save` has put it into other modules too.
constexpr char kSave[] =
    "import functools, sys\n"
    "@functools.wraps(call)\n"
    "def nanwatch_save(*arguments, **named):\n"
    "    if is_compiling():\n"
    "        return call(*arguments, **named)\n"
    "    try:\n"
    "        tell((arguments, named))\n"
    "        result = call(*arguments, **named)\n"
    "    except BaseException:\n"
    "        tell((arguments, named, False))\n"
    "        raise\n"
    "    tell((arguments, named, True))\n"
    "    return result\n"
    "nanwatch_save._torchdynamo_inline = call\n"
    "for module in list(sys.modules.values()):\n"
    // Not by getattr, at which some modules begin to load themselves.
    "    names = object.__getattribute__(module, '__dict__') if isinstance(module, type(sys)) else "
    "None\n"
    "    if type(names) is dict:\n"
    "        for name, value in list(names.items()):\n"
    "            if value is call:\n"
    "                names[name] = nanwatch_save\n";

std::string Below(const std::string& name, const std::string& key) {
  return name.empty() ? key : name + "." + key;
}

}  // namespace

void CheckpointCalls::TryReplace() {
  static PyMethod tell = {"tell", OnCall, kPyMethodOneArgument, nullptr};
  static_assert(std::size(kSaves) == kFunctions);
  if (callbacks_.on_begin == nullptr || tensor_type_ == nullptr) return;
  if (checkpoint_calls_of_process != nullptr && checkpoint_calls_of_process != this) return;
  const KeptError error(api_);
  PyObj* modules = api_.ImportedModule("torch.nn.modules.module");
  if (modules == nullptr) return;
  if (module_type_ == nullptr) module_type_ = api_.AttributeOrNull(modules, "Module");
  if (module_type_ == nullptr) return;
  checkpoint_calls_of_process = this;
  for (int i = 0; i < kFunctions; ++i) {
    if (replaced_[i]) continue;
    PyObj* module = api_.ImportedModule(kSaves[i].module);
    if (module == nullptr) continue;
    replaced_[i] = api_.ReplaceFunction(module, kSaves[i].name, {kSave, "nanwatch_save"}, &tell);
  }
}

// (arguments, named) before the call, and with it whether it returned, behind it.
PyObj* CheckpointCalls::OnCall(PyObj*, PyObj* told) {
  const PythonApi& api = checkpoint_calls_of_process->api_;
  const KeptError error(api);
  try {
    Tell(told);
  } catch (const std::exception&) {
    // No memory for names: nothing is said of this save.
  }
  return api.NewNone();
}

void CheckpointCalls::Tell(PyObj* told) {
  CheckpointCalls& mine = *checkpoint_calls_of_process;
  PyObj* const arguments = mine.api_.ItemOf(told, 0);
  PyObj* const named = mine.api_.ItemOf(told, 1);
  PyObj* const returned = mine.api_.ItemOf(told, 2);
  if (returned == nullptr) {
    mine.Begin(arguments, named);
  } else {
    mine.End(arguments, named, returned != mine.api_.true_object);
  }
}

CheckpointCalls::Open* CheckpointCalls::OfThisThread(bool claim) {
  const unsigned long thread = api_.PyThread_get_thread_ident();
  const int pid = getpid();
  Open* const last = std::end(open_);
  for (Open& open : open_) {
    if (open.pid != pid) open = {};
  }
  Open* open = std::find_if(open_, last, [&](const Open& o) { return o.thread == thread; });
  if (open == last && claim)
    open = std::find_if(open_, last, [](const Open& o) { return o.thread == 0; });
  if (open == last) return nullptr;
  open->thread = thread;
  open->pid = pid;
  return open;
}

void CheckpointCalls::Begin(PyObj* arguments, PyObj* named) {
  Open* const open = OfThisThread(/*claim=*/true);
  if (open == nullptr || open->depth++ != 0) return;
  PyObj* object = api_.ItemOf(arguments, 0);
  for (const char* name : kObjectNames) {
    if (object == nullptr) object = api_.PyDict_GetItemString(named, name);
  }
  SavedTensors saved;
  if (object != nullptr && MayHoldTensors(object)) Collect(object, "", 0, &saved);
  callbacks_.on_begin(static_cast<unsigned>(open - open_), saved);
}

void CheckpointCalls::End(PyObj* arguments, PyObj* named, bool failed) {
  Open* const open = OfThisThread(/*claim=*/false);
  if (open == nullptr || open->depth == 0 || --open->depth != 0) return;
  void* const state = api_.PyEval_SaveThread();
  callbacks_.on_wait(static_cast<unsigned>(open - open_));
  api_.PyEval_RestoreThread(state);
  callbacks_.on_end(static_cast<unsigned>(open - open_), FileOf(arguments, named).c_str(), failed);
  open->thread = 0;
}

bool CheckpointCalls::MayHoldTensors(PyObj* object) const {
  if (object->type == api_.int_type || object->type == api_.float_type || object == api_.none)
    return false;
  constexpr unsigned long kContainers = kPyFlagDict | kPyFlagList | kPyFlagTuple | kPyFlagHeapType;
  return api_.HasFlag(object, kContainers) ||
         api_.PyType_IsSubtype(object->type, tensor_type_) != 0;
}

void CheckpointCalls::Collect(PyObj* object, const std::string& name, int depth,
                              SavedTensors* found) {
  if (api_.PyType_IsSubtype(object->type, tensor_type_) != 0) {
    const at::TensorBase* tensor = names_.TensorOf(object);
    if (tensor != nullptr && found->tensors.size() < kTensorsMax) {
      found->tensors.push_back({tensor, name});
    } else {
      found->left_out = true;
    }
    return;
  }
  const bool is_module = api_.PyType_IsSubtype(object->type, module_type_) != 0;
  if (depth >= (is_module ? kModuleDepthMax : kDepthMax) || found->seen.size() >= kTensorsMax) {
    found->left_out = true;
  } else if (api_.HasFlag(object, kPyFlagDict)) {
    CollectDict(object, name, depth, found);
  } else if (api_.HasFlag(object, kPyFlagList | kPyFlagTuple)) {
    CollectItems(object, name, depth, found);
  } else if (found->seen.insert(object).second) {
    is_module ? CollectModule(object, name, depth, found)
              : CollectAttributes(object, name, depth, found);
  }
}

void CheckpointCalls::CollectItems(PyObj* sequence, const std::string& name, int depth,
                                   SavedTensors* found) {
  for (size_t i = 0; PyObj* item = api_.ItemOf(sequence, i); ++i) {
    if (MayHoldTensors(item)) Collect(item, Below(name, std::to_string(i)), depth + 1, found);
  }
}

// Of a class of the program's: an average of weights that is no module, an optimizer, arguments.
void CheckpointCalls::CollectAttributes(PyObj* object, const std::string& name, int depth,
                                        SavedTensors* found) {
  const PyOwned key(api_, api_.PyUnicode_FromString("__dict__"));
  const PyOwned dict(api_, key ? api_.PyObject_GenericGetAttr(object, key.get()) : nullptr);
  if (!dict) api_.PyErr_Clear();
  if (dict && api_.HasFlag(dict.get(), kPyFlagDict)) CollectDict(dict.get(), name, depth, found);
}

void CheckpointCalls::CollectModule(PyObj* module, const std::string& name, int depth,
                                    SavedTensors* found) {
  for (const char* part : {"_parameters", "_buffers", "_modules"}) {
    const PyOwned dict(api_, api_.AttributeOrNull(module, part));
    if (dict && api_.HasFlag(dict.get(), kPyFlagDict)) CollectDict(dict.get(), name, depth, found);
  }
}

void CheckpointCalls::CollectDict(PyObj* dict, const std::string& name, int depth,
                                  SavedTensors* found) {
  ptrdiff_t at = 0;
  PyObj* key = nullptr;
  PyObj* value = nullptr;
  while (api_.PyDict_Next(dict, &at, &key, &value) != 0) {
    if (MayHoldTensors(value)) Collect(value, Below(name, KeyText(key)), depth + 1, found);
  }
}

// Of a parameter's name and an optimizer's number; nothing of any other key, whose text the
// program's own code would make.
std::string CheckpointCalls::KeyText(PyObj* key) const {
  if (const char* text = api_.Text(key)) return text;
  if (key->type != api_.int_type) return "?";
  const PyOwned number(api_, api_.PyObject_Repr(key));
  const char* const digits = number ? api_.Text(number.get()) : nullptr;
  return digits != nullptr ? digits : "?";
}

std::string CheckpointCalls::FileOf(PyObj* arguments, PyObj* named) const {
  PyObj* file = api_.ItemOf(arguments, 1);
  for (const char* name : kFileNames) {
    if (file == nullptr) file = api_.PyDict_GetItemString(named, name);
  }
  return file == nullptr ? "" : PathText(file);
}

// A text, a path of pathlib's, or an open file that has one.
std::string CheckpointCalls::PathText(PyObj* file) const {
  if (const char* text = api_.Text(file)) return text;
  constexpr PyObj* kEnd = nullptr;
  if (const PyOwned path(api_, api_.AttributeOrNull(file, "__fspath__")); path) {
    const PyOwned text(api_, api_.PyObject_CallFunctionObjArgs(path.get(), kEnd));
    const char* const words = text ? api_.Text(text.get()) : nullptr;
    return words != nullptr ? words : "";
  }
  const PyOwned name(api_, api_.AttributeOrNull(file, "name"));
  const char* const words = name ? api_.Text(name.get()) : nullptr;
  return words != nullptr ? words : "";
}

}  // namespace nanwatch
