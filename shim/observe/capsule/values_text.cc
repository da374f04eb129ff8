// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/capsule/values_text.h"

#include <ATen/core/jit_type.h>

namespace nanwatch {
namespace {

// The innermost type: of "ScalarType?" and "int[]" that of the element.
c10::TypeKind ElementKind(const c10::Type& type) {
  const c10::Type* inner = &type;
  while (inner->kind() == c10::TypeKind::OptionalType || inner->kind() == c10::TypeKind::ListType) {
    if (inner->containedTypeSize() == 0) break;
    inner = inner->containedType(0).get();
  }
  return inner->kind();
}

const char* NameOfLayout(int64_t layout) {
  switch (static_cast<c10::Layout>(layout)) {
    case c10::Layout::Strided:
      return "strided";
    case c10::Layout::Sparse:
      return "sparse_coo";
    case c10::Layout::Mkldnn:
      return "_mkldnn";
    default:
      return "";
  }
}

const char* NameOfFormat(int64_t format) {
  switch (static_cast<c10::MemoryFormat>(format)) {
    case c10::MemoryFormat::Contiguous:
      return "contiguous_format";
    case c10::MemoryFormat::Preserve:
      return "preserve_format";
    case c10::MemoryFormat::ChannelsLast:
      return "channels_last";
    case c10::MemoryFormat::ChannelsLast3d:
      return "channels_last_3d";
    default:
      return "";
  }
}

void WriteTagged(const char* tag, const char* name, JsonText* json) {
  json->Open('{').Key(tag).Text(name).Close('}');
}

void WriteInteger(int64_t number, c10::TypeKind kind, JsonText* json) {
  if (kind == c10::TypeKind::ScalarTypeType) {
    return WriteTagged("dtype", DtypeName(static_cast<c10::ScalarType>(number)), json);
  }
  if (kind == c10::TypeKind::LayoutType) return WriteTagged("layout", NameOfLayout(number), json);
  if (kind == c10::TypeKind::MemoryFormatType) {
    return WriteTagged("memory_format", NameOfFormat(number), json);
  }
  json->Open('{').Key("int").Integer(number).Close('}');
}

void WriteOne(const c10::IValue& value, c10::TypeKind kind, JsonText* json) {
  if (value.isBool()) {
    json->Bool(value.toBool());
  } else if (value.isInt()) {
    WriteInteger(value.toInt(), kind, json);
  } else if (value.isDouble()) {
    json->Open('{').Key("float").NumberText(value.toDouble()).Close('}');
  } else if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    json->Open('{').Key("complex").Open('[');
    json->NumberText(number.real()).NumberText(number.imag()).Close(']').Close('}');
  } else if (value.isString()) {
    json->Open('{').Key("text").Text(value.toStringRef()).Close('}');
  } else if (value.isDevice()) {
    json->Open('{').Key("device").Text(value.toDevice().str()).Close('}');
  } else {
    json->Null();
  }
}

}  // namespace

const char* DtypeName(c10::ScalarType type) noexcept {
  switch (type) {
    case c10::ScalarType::Byte:
      return "uint8";
    case c10::ScalarType::Char:
      return "int8";
    case c10::ScalarType::Short:
      return "int16";
    case c10::ScalarType::Int:
      return "int32";
    case c10::ScalarType::Long:
      return "int64";
    case c10::ScalarType::Half:
      return "float16";
    case c10::ScalarType::Float:
      return "float32";
    case c10::ScalarType::Double:
      return "float64";
    case c10::ScalarType::ComplexHalf:
      return "complex32";
    case c10::ScalarType::ComplexFloat:
      return "complex64";
    case c10::ScalarType::ComplexDouble:
      return "complex128";
    case c10::ScalarType::Bool:
      return "bool";
    case c10::ScalarType::BFloat16:
      return "bfloat16";
    case c10::ScalarType::Float8_e5m2:
      return "float8_e5m2";
    case c10::ScalarType::Float8_e4m3fn:
      return "float8_e4m3fn";
    case c10::ScalarType::Float8_e5m2fnuz:
      return "float8_e5m2fnuz";
    case c10::ScalarType::Float8_e4m3fnuz:
      return "float8_e4m3fnuz";
    case c10::ScalarType::UInt16:
      return "uint16";
    case c10::ScalarType::UInt32:
      return "uint32";
    case c10::ScalarType::UInt64:
      return "uint64";
    default:
      return "";
  }
}

const char* DtypeName(wire::ElementType type) noexcept {
  switch (type) {
    case wire::ElementType::kFloat64:
      return "float64";
    case wire::ElementType::kFloat32:
      return "float32";
    case wire::ElementType::kFloat16:
      return "float16";
    case wire::ElementType::kBFloat16:
      return "bfloat16";
    case wire::ElementType::kComplex128:
      return "complex128";
    case wire::ElementType::kComplex64:
      return "complex64";
    case wire::ElementType::kComplex32:
      return "complex32";
    case wire::ElementType::kFloat8E5M2:
      return "float8_e5m2";
    case wire::ElementType::kFloat8E4M3Fn:
      return "float8_e4m3fn";
    case wire::ElementType::kFloat8E5M2Fnuz:
      return "float8_e5m2fnuz";
    case wire::ElementType::kFloat8E4M3Fnuz:
      return "float8_e4m3fnuz";
    case wire::ElementType::kFloat8E8M0Fnu:
      return "float8_e8m0fnu";
    default:
      return "";
  }
}

void WriteValue(const c10::IValue& value, const c10::Type& type, JsonText* json) {
  const c10::TypeKind kind = ElementKind(type);
  if (!value.isList()) return WriteOne(value, kind, json);
  json->Open('[');
  for (const c10::IValue& item : value.toListRef()) WriteOne(item, kind, json);
  json->Close(']');
}

}  // namespace nanwatch
