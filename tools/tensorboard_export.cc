// SPDX-License-Identifier: Apache-2.0
#include "tools/tensorboard_export.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <array>

namespace nanwatch {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0);
    table[i] = value;
  }
  return table;
}();

// tensorflow/core/lib/hash/crc32c.h: a checksum of data that holds checksums.
uint32_t MaskedCrc(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string LittleEndian(uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i) & 0xff);
  return text;
}

std::string RecordOf(const std::string& data) {
  const std::string length = LittleEndian(data.size(), 8);
  return length + LittleEndian(MaskedCrc(length), 4) + data + LittleEndian(MaskedCrc(data), 4);
}

template <typename Write>
std::string Message(Write write) {
  std::string text;
  {
    StringOutputStream stream(&text);
    CodedOutputStream out(&stream);
    write(out);
  }
  return text;
}

// tensorflow/core/util/event.proto: wall_time 1, step 2, file_version 3, summary 5.
std::string FirstEvent(double wall_s) {
  return RecordOf(Message([&](CodedOutputStream& out) {
    WireFormatLite::WriteDouble(1, wall_s, &out);
    WireFormatLite::WriteString(3, "brain.Event:2", &out);
  }));
}

// summary.proto: Summary.value 1; Value.tag 1, simple_value 2.
std::string ValueEvent(double wall_s, int64_t step, const char* tag, double number) {
  const std::string value = Message([&](CodedOutputStream& out) {
    WireFormatLite::WriteString(1, tag, &out);
    WireFormatLite::WriteFloat(2, static_cast<float>(number), &out);
  });
  const std::string summary =
      Message([&](CodedOutputStream& out) { WireFormatLite::WriteBytes(1, value, &out); });
  return RecordOf(Message([&](CodedOutputStream& out) {
    WireFormatLite::WriteDouble(1, wall_s, &out);
    WireFormatLite::WriteInt64(2, step, &out);
    WireFormatLite::WriteBytes(5, summary, &out);
  }));
}

double WallSeconds(uint64_t monotonic_ns, const Run& run) {
  const auto since_start =
      static_cast<int64_t>(monotonic_ns) - static_cast<int64_t>(run.started_monotonic_ns());
  return static_cast<double>(static_cast<int64_t>(run.started_real_ns()) + since_start) * 1e-9;
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes)
    crc = kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::string TensorBoardEvents(const Run& run, const RunSeries& series) {
  std::string text = FirstEvent(static_cast<double>(run.started_real_ns()) * 1e-9);
  for (const StepPoint& point : series.points) {
    const double wall_s = WallSeconds(point.time_ns, run);
    const int64_t step = point.step >= 0 ? point.step : point.x;
    const auto add = [&](const char* tag, const std::optional<double>& value) {
      if (value.has_value()) text += ValueEvent(wall_s, step, tag, *value);
    };
    add("nanwatch/loss", point.loss);
    add("nanwatch/gradient_norm", point.gradient_norm);
    add("nanwatch/loss_scale", point.scale);
    add("nanwatch/learning_rate", point.learning_rate);
    add("nanwatch/overhead", point.overhead);
    add("nanwatch/seconds", point.seconds);
    add("nanwatch/limit_share", point.limit_share);
    add("nanwatch/bad", point.bad ? 1 : 0);
  }
  return text;
}

std::string TensorBoardFileName(const Run& run, const RunSeries& series) {
  return "events.out.tfevents." + std::to_string(run.started_real_ns() / 1'000'000'000) + "." +
         series.run + ".nanwatch";
}

}  // namespace nanwatch
