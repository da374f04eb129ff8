// SPDX-License-Identifier: Apache-2.0
// Posts a job to an OTLP/HTTP receiver: an OpenTelemetry Collector, or what speaks as one.
#pragma once

#include <functional>
#include <string>

#include "daemon/base/status.h"
#include "daemon/http/http_client.h"
#include "tools/otlp_export.h"

namespace nanwatch {

// The path, and a body in protobuf's encoding.
using OtlpPost = std::function<Result<HttpReply>(const std::string& path, const std::string& body)>;

// Logs first. Stops at the first request that is not taken; the message names `url`, says what to do
// and how much had been taken by then.
[[nodiscard]] Status SendOtlp(const OtlpExport& exported, const std::string& url,
                              const OtlpPost& post);

}  // namespace nanwatch
