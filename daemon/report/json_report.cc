// SPDX-License-Identifier: Apache-2.0
#include "daemon/report/json_report.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace nanwatch {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::ordered_json;

ordered_json Single(const Message& message, const FieldDescriptor& field) {
  const Reflection& read = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return read.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return read.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return read.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return read.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return JsonNumber(read.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return JsonNumber(read.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return read.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return read.GetEnumValue(message, &field);
    case FieldDescriptor::CPPTYPE_STRING:
      return read.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return JsonOf(read.GetMessage(message, &field));
  }
  return nullptr;
}

ordered_json Element(const Message& message, const FieldDescriptor& field, int i) {
  const Reflection& read = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return read.GetRepeatedInt32(message, &field, i);
    case FieldDescriptor::CPPTYPE_INT64:
      return read.GetRepeatedInt64(message, &field, i);
    case FieldDescriptor::CPPTYPE_UINT32:
      return read.GetRepeatedUInt32(message, &field, i);
    case FieldDescriptor::CPPTYPE_UINT64:
      return read.GetRepeatedUInt64(message, &field, i);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return JsonNumber(read.GetRepeatedDouble(message, &field, i));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return JsonNumber(read.GetRepeatedFloat(message, &field, i));
    case FieldDescriptor::CPPTYPE_BOOL:
      return read.GetRepeatedBool(message, &field, i);
    case FieldDescriptor::CPPTYPE_ENUM:
      return read.GetRepeatedEnumValue(message, &field, i);
    case FieldDescriptor::CPPTYPE_STRING:
      return read.GetRepeatedString(message, &field, i);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return JsonOf(read.GetRepeatedMessage(message, &field, i));
  }
  return nullptr;
}

// A map of the document has texts for keys; sorted, so that the same verdict is the same text.
ordered_json MapOf(const Message& message, const FieldDescriptor& field) {
  const Reflection& read = *message.GetReflection();
  nlohmann::json sorted = nlohmann::json::object();
  for (int i = 0; i < read.FieldSize(message, &field); ++i) {
    const Message& entry = read.GetRepeatedMessage(message, &field, i);
    const FieldDescriptor& key = *entry.GetDescriptor()->map_key();
    const FieldDescriptor& value = *entry.GetDescriptor()->map_value();
    sorted[entry.GetReflection()->GetString(entry, &key)] = Single(entry, value);
  }
  return sorted;
}

ordered_json ListOf(const Message& message, const FieldDescriptor& field) {
  ordered_json list = ordered_json::array();
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    list.push_back(Element(message, field, i));
  }
  return list;
}

// An interval that was not measured is not known, other than a list that is empty.
bool IsUnknown(const Message& message, const FieldDescriptor& field) {
  const Reflection& read = *message.GetReflection();
  if (!field.is_repeated()) return field.has_presence() && !read.HasField(message, &field);
  return field.name() == "overhead_interval" && read.FieldSize(message, &field) == 0;
}

std::string TextOf(const Message& message) {
  return JsonOf(message).dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

ordered_json JsonNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

ordered_json JsonOf(const Message& message) {
  ordered_json object = ordered_json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    ordered_json& slot = object[field.name()];
    if (IsUnknown(message, field)) {
      slot = nullptr;
    } else if (field.is_map()) {
      slot = MapOf(message, field);
    } else if (field.is_repeated()) {
      slot = ListOf(message, field);
    } else {
      slot = Single(message, field);
    }
  }
  return object;
}

std::string JsonReport(const Verdict& verdict) { return TextOf(verdict); }

std::string JsonExplanation(const Explanation& explanation) { return TextOf(explanation); }

std::string JsonStats(const StatsReport& report) { return TextOf(report); }

}  // namespace nanwatch
