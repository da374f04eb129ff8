// SPDX-License-Identifier: Apache-2.0
// The schema behind a RecordFunction. Its name is public, its schema is a private member; a lookup
// by name would cost two thousand instructions an op. An explicit instantiation may name private
// members, and the compiler checks type and offset against the headers of the torch version this is
// built for.
#pragma once

#include <ATen/record_function.h>

#include <variant>

namespace nanwatch {

template <auto Member>
struct RecordFunctionMember {
  friend constexpr auto FunctionMember() { return Member; }
};
constexpr auto FunctionMember();
template struct RecordFunctionMember<&at::RecordFunction::fn_>;

// nullptr for a range that is named by a string.
inline const c10::FunctionSchema* SchemaOf(const at::RecordFunction& range) noexcept {
  using Reference = at::RecordFunction::schema_ref_t;
  const Reference* reference = std::get_if<Reference>(&(range.*FunctionMember()));
  return reference != nullptr ? &reference->get() : nullptr;
}

}  // namespace nanwatch
