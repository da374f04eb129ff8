// SPDX-License-Identifier: Apache-2.0
// Attributes of OTLP's resources, records and data points.
#pragma once

#include <cstdint>
#include <string>

#include "otlp_logs.pb.h"

namespace nanwatch {

using OtlpAttributes = google::protobuf::RepeatedPtrField<otlp::KeyValue>;

void AddText(OtlpAttributes& attributes, const char* key, const std::string& value);
void AddNumber(OtlpAttributes& attributes, const char* key, int64_t value);
void AddFlag(OtlpAttributes& attributes, const char* key, bool value);

}  // namespace nanwatch
