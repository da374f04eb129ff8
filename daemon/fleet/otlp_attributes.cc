// SPDX-License-Identifier: Apache-2.0
#include "daemon/fleet/otlp_attributes.h"

namespace nanwatch {
namespace {

otlp::AnyValue& AddNamed(OtlpAttributes& attributes, const char* key) {
  otlp::KeyValue& attribute = *attributes.Add();
  attribute.set_key(key);
  return *attribute.mutable_value();
}

}  // namespace

void AddText(OtlpAttributes& attributes, const char* key, const std::string& value) {
  AddNamed(attributes, key).set_string_value(value);
}

void AddNumber(OtlpAttributes& attributes, const char* key, int64_t value) {
  AddNamed(attributes, key).set_int_value(value);
}

void AddFlag(OtlpAttributes& attributes, const char* key, bool value) {
  AddNamed(attributes, key).set_bool_value(value);
}

}  // namespace nanwatch
