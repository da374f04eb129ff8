// SPDX-License-Identifier: Apache-2.0
// Which class of Python's a type is, by the module that defines it and its qualified name. Needs the
// GIL, and leaves no error pending.
#pragma once

#include <cstring>

#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

class ClassId {
 public:
  ClassId(const PythonApi& api, PyObj* type)
      : module_(api, api.AttributeOrNull(type, "__module__")),
        name_(api, api.AttributeOrNull(type, "__qualname__")),
        module_text_(module_ ? api.Text(module_.get()) : nullptr),
        name_text_(name_ ? api.Text(name_.get()) : nullptr) {}

  [[nodiscard]] bool Is(const char* module, const char* name) const noexcept {
    return module_text_ != nullptr && name_text_ != nullptr &&
           std::strcmp(module_text_, module) == 0 && std::strcmp(name_text_, name) == 0;
  }

 private:
  const PyOwned module_;
  const PyOwned name_;
  const char* module_text_;
  const char* name_text_;
};

}  // namespace nanwatch
