// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/message_mutator.h"

#include <google/protobuf/descriptor.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace nanwatch {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kDepthMax = 6;
constexpr int kRepeatedMax = 24;

template <typename T, size_t N>
T OneOf(const std::array<T, N>& values, std::mt19937_64& random) {
  return values[random() % N];
}

// Mostly small, so that tickets, values and names of one record are those of another.
uint64_t Number(std::mt19937_64& random) {
  static constexpr std::array<uint64_t, 8> kNasty = {0,
                                                     0x7f,
                                                     0xffff,
                                                     0x7fffffff,
                                                     0xffffffff,
                                                     uint64_t{1} << 62,
                                                     uint64_t{1} << 63,
                                                     std::numeric_limits<uint64_t>::max()};
  return random() % 8 == 0 ? OneOf(kNasty, random) : random() % 9;
}

double Real(std::mt19937_64& random) {
  static const std::array<double, 9> kValues = {0,     -0.0,   1,        -1,          1e-320,
                                                1e308, -1e308, HUGE_VAL, std::nan("")};
  return random() % 4 == 0 ? static_cast<double>(random() % 1000) / 7 : OneOf(kValues, random);
}

std::string Text(std::mt19937_64& random) {
  static const std::array<std::string, 16> kWords = {"",
                                                     "aten::log",
                                                     "aten::_softmax",
                                                     "aten::div",
                                                     "layer.1",
                                                     "Model#0",
                                                     "fc.weight",
                                                     "forward",
                                                     "op=aten::log",
                                                     "full",
                                                     "\x1b[2J\x1b]0;x\x07",
                                                     "a\nb\r\tc",
                                                     "\xc2\x9b\x32J",
                                                     "\xe2\x80\xae<script>&amp;\"'",
                                                     "train.py:7 in forward",
                                                     std::string(700, 'n')};
  return OneOf(kWords, random);
}

int EnumNumber(const FieldDescriptor& field, std::mt19937_64& random) {
  if (random() % 16 == 0) return static_cast<int>(random() % 300) - 5;
  const auto* type = field.enum_type();
  return type->value(static_cast<int>(random() % static_cast<uint64_t>(type->value_count())))
      ->number();
}

// Sets the field, or adds to it where it is repeated.
void SetScalar(Message& message, const FieldDescriptor& field, std::mt19937_64& random) {
  const Reflection& of = *message.GetReflection();
  const bool add = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      const auto value = static_cast<int32_t>(Number(random));
      return add ? of.AddInt32(&message, &field, value) : of.SetInt32(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      const auto value = static_cast<uint32_t>(Number(random));
      return add ? of.AddUInt32(&message, &field, value) : of.SetUInt32(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      const auto value = static_cast<int64_t>(Number(random));
      return add ? of.AddInt64(&message, &field, value) : of.SetInt64(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const uint64_t value = Number(random);
      return add ? of.AddUInt64(&message, &field, value) : of.SetUInt64(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = Real(random);
      return add ? of.AddDouble(&message, &field, value) : of.SetDouble(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const auto value = static_cast<float>(Real(random));
      return add ? of.AddFloat(&message, &field, value) : of.SetFloat(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const bool value = random() % 2 == 0;
      return add ? of.AddBool(&message, &field, value) : of.SetBool(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int value = EnumNumber(field, random);
      return add ? of.AddEnumValue(&message, &field, value)
                 : of.SetEnumValue(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string value = Text(random);
      return add ? of.AddString(&message, &field, value) : of.SetString(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
}

void ChangeOne(Message& message, std::mt19937_64& random, int depth);

// Of messages: another one, or one of those that are there.
Message& PickMessage(Message& message, const FieldDescriptor& field, std::mt19937_64& random) {
  const Reflection& of = *message.GetReflection();
  if (!field.is_repeated()) return *of.MutableMessage(&message, &field);
  const int count = of.FieldSize(message, &field);
  if (count == 0 || (count < kRepeatedMax && random() % 3 == 0))
    return *of.AddMessage(&message, &field);
  return *of.MutableRepeatedMessage(&message, &field,
                                    static_cast<int>(random() % static_cast<uint64_t>(count)));
}

void ChangeOne(Message& message, std::mt19937_64& random, int depth) {
  const auto* type = message.GetDescriptor();
  if (type->field_count() == 0) return;
  const FieldDescriptor& field =
      *type->field(static_cast<int>(random() % static_cast<uint64_t>(type->field_count())));
  const Reflection& of = *message.GetReflection();
  if (random() % 16 == 0) return of.ClearField(&message, &field);
  if (field.is_repeated() && of.FieldSize(message, &field) > 0 && random() % 12 == 0)
    return of.RemoveLast(&message, &field);
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    if (field.is_repeated() && of.FieldSize(message, &field) >= kRepeatedMax)
      of.ClearField(&message, &field);
    return SetScalar(message, field, random);
  }
  if (depth == kDepthMax) return;
  Message& inner = PickMessage(message, field, random);
  for (uint64_t n = 1 + random() % 4; n > 0; --n) ChangeOne(inner, random, depth + 1);
}

}  // namespace

void MutateMessage(Message& message, std::mt19937_64& random) {
  for (uint64_t n = 1 + random() % 6; n > 0; --n) ChangeOne(message, random, 0);
}

}  // namespace nanwatch
