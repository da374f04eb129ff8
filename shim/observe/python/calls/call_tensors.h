// SPDX-License-Identifier: Apache-2.0
// The tensors in a call's arguments or result: through tuples, lists, dicts, dataclasses and
// mappings, three levels deep, at most 64 of them, each with a name such as "args[0]", "mask" or
// "args[0]['image']". Needs the GIL; runs no Python code but attribute look-ups on dataclasses and
// mappings.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstddef>
#include <cstdint>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

class PythonNames;

class CallTensors {
 public:
  static constexpr size_t kTensorsMax = 64;
  static constexpr int kDepthMax = 3;

  CallTensors(const PythonApi& api, PythonNames& names, PyObj* tensor_type) noexcept
      : api_(api), names_(names), tensor_type_(tensor_type) {}

  void AddArguments(PyObj* const* args, size_t count, PyObj* keyword_names);
  void AddResult(PyObj* result);

  // Valid for as long as this object and the Python objects live.
  [[nodiscard]] const at::TensorBase* const* tensors() const noexcept { return tensors_; }
  [[nodiscard]] const char* const* names() const noexcept { return labels_; }
  [[nodiscard]] size_t count() const noexcept { return count_; }

 private:
  struct Label {
    Label() noexcept { text[0] = 0; }
    char text[56];
    void Append(const char* before, const char* name, const char* after) noexcept;
  };
  [[nodiscard]] static Label Labelled(const char* format, ptrdiff_t i);
  void Add(PyObj* object, const Label& label, int depth);
  void AddObject(PyObj* object, const Label& label, int depth);
  void AddSequence(PyObj* object, const Label& label, int depth, bool tuple);
  void AddDict(PyObj* dict, const Label& label, int depth, bool attributes);
  [[nodiscard]] bool IsTensor(PyObj* object) const;

  const PythonApi& api_;
  PythonNames& names_;
  PyObj* tensor_type_;
  size_t count_ = 0;
  const at::TensorBase* tensors_[kTensorsMax];
  const char* labels_[kTensorsMax];
  Label text_[kTensorsMax];
};

}  // namespace nanwatch
