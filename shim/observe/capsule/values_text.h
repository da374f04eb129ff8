// SPDX-License-Identifier: Apache-2.0
// What is no tensor, as a capsule's manifest has it: {"int": 5}, {"float": "0.1"}, {"dtype":
// "float32"}, lists of these, null, true and false (proto/README.md).
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type_base.h>

#include "proto/wire/record.h"
#include "shim/observe/capsule/json_text.h"

namespace nanwatch {

// As torch names it in Python: "float32".
[[nodiscard]] const char* DtypeName(c10::ScalarType type) noexcept;
[[nodiscard]] const char* DtypeName(wire::ElementType type) noexcept;

// `type` is what the op's schema says of it: a dtype is an integer otherwise.
void WriteValue(const c10::IValue& value, const c10::Type& type, JsonText* json);

}  // namespace nanwatch
