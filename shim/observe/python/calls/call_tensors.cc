// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/calls/call_tensors.h"

#include <cstdio>
#include <cstring>

#include "shim/observe/python/names/python_names.h"

namespace nanwatch {
namespace {

// Longer containers (token lists, a data set) are not searched to their end.
constexpr ptrdiff_t kItemsMax = 256;

}  // namespace

void CallTensors::AddArguments(PyObj* const* args, size_t count, PyObj* keyword_names) {
  for (size_t i = 0; i < count; ++i)
    Add(args[i], Labelled("args[%zd]", static_cast<ptrdiff_t>(i)), 0);
  if (keyword_names == nullptr) return;
  const ptrdiff_t keywords = api_.PyTuple_Size(keyword_names);
  for (ptrdiff_t i = 0; i < keywords; ++i) {
    const char* name = api_.Text(api_.PyTuple_GetItem(keyword_names, i));
    Label label;
    label.Append("", name == nullptr ? "?" : name, "");
    Add(args[count + static_cast<size_t>(i)], label, 0);
  }
}

void CallTensors::AddResult(PyObj* result) {
  Label label;
  label.Append("", "output", "");
  Add(result, label, 0);
}

CallTensors::Label CallTensors::Labelled(const char* format, ptrdiff_t i) {
  Label label;
  snprintf(label.text, sizeof label.text, format, i);
  return label;
}

// Cuts what is too long: a name is a help to a reader, not a key.
void CallTensors::Label::Append(const char* before, const char* name, const char* after) noexcept {
  const size_t length = strnlen(text, sizeof text);
  snprintf(text + length, sizeof text - length, "%s%s%s", before, name, after);
}

bool CallTensors::IsTensor(PyObj* object) const {
  return api_.PyType_IsSubtype(object->type, tensor_type_) != 0;
}

void CallTensors::Add(PyObj* object, const Label& label, int depth) {
  if (count_ == kTensorsMax || depth > kDepthMax || object == nullptr) return;
  const unsigned long flags = api_.PyType_GetFlags(object->type);
  if ((flags & (kPyFlagTuple | kPyFlagList)) != 0) {
    AddSequence(object, label, depth, (flags & kPyFlagTuple) != 0);
  } else if ((flags & kPyFlagDict) != 0) {
    AddDict(object, label, depth, false);
  } else if ((flags & kPyFlagHeapType) != 0 || IsTensor(object)) {
    AddObject(object, label, depth);
  }
}

void CallTensors::AddObject(PyObj* object, const Label& label, int depth) {
  if (IsTensor(object)) {
    const at::TensorBase* tensor = names_.TensorOf(object);
    if (tensor == nullptr) return;
    tensors_[count_] = tensor;
    text_[count_] = label;
    labels_[count_] = text_[count_].text;
    ++count_;
    return;
  }
  // Dataclasses and mappings that are no dict (transformers.BatchEncoding) keep their tensors in
  // their attributes.
  const char* mark = "__dataclass_fields__";
  PyObj* found = api_.AttributeOrNull(object->type, mark);
  if (found == nullptr) found = api_.AttributeOrNull(object->type, "keys");
  if (found == nullptr) return;
  api_.Py_DecRef(found);
  PyObj* attributes = api_.AttributeOrNull(object, "__dict__");
  if (attributes == nullptr) return;
  if (api_.HasFlag(attributes, kPyFlagDict)) AddDict(attributes, label, depth, true);
  api_.Py_DecRef(attributes);
}

void CallTensors::AddSequence(PyObj* object, const Label& label, int depth, bool tuple) {
  const ptrdiff_t size = tuple ? api_.PyTuple_Size(object) : api_.PyList_Size(object);
  for (ptrdiff_t i = 0; i < size && i < kItemsMax && count_ < kTensorsMax; ++i) {
    Label item = label;
    item.Append("", Labelled("[%zd]", i).text, "");
    Add(tuple ? api_.PyTuple_GetItem(object, i) : api_.PyList_GetItem(object, i), item, depth + 1);
  }
}

void CallTensors::AddDict(PyObj* dict, const Label& label, int depth, bool attributes) {
  ptrdiff_t position = 0;
  PyObj* key = nullptr;
  PyObj* value = nullptr;
  for (ptrdiff_t i = 0; i < kItemsMax && api_.PyDict_Next(dict, &position, &key, &value) != 0;
       ++i) {
    const char* name = api_.Text(key);
    Label item = label;
    item.Append(attributes ? "." : "['", name == nullptr ? "?" : name, attributes ? "" : "']");
    Add(value, item, depth + 1);
  }
}

}  // namespace nanwatch
