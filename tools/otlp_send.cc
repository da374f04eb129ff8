// SPDX-License-Identifier: Apache-2.0
#include "tools/otlp_send.h"

#include <algorithm>

#include "daemon/fleet/otlp_logs.h"
#include "daemon/report/cell_text.h"

namespace nanwatch {
namespace {

constexpr size_t kAnswerBytesMax = 200;  // of what is repeated of an answer

std::string AdviceFor(int status) {
  switch (status) {
    case 401:
    case 403:
      return "give --token-file FILE with a token that it takes";
    case 404:
    case 405:
      return "give its address as in http://127.0.0.1:4318, without /v1/logs";
    case 413:
      return "raise the longest body that it takes (max_request_body_size) to 4 MiB";
    case 429:
    case 502:
    case 503:
    case 504:
      return "it takes nothing now, try again later";
    default:
      return "see whether an OTLP/HTTP receiver listens there, and what its log says";
  }
}

// "" where there is none, or none that can be read.
std::string FirstLine(const HttpReply& reply) {
  const auto type = reply.headers.find("content-type");
  if (type == reply.headers.end() || !type->second.starts_with("text/plain")) return "";
  const size_t end = std::min(reply.body.find('\n'), kAnswerBytesMax);
  return Printable(reply.body.substr(0, end));
}

// An answer of OTLP's is empty, or has the encoding of the request. Some give JSON all the same.
Status WhatItSays(const HttpReply& reply, const std::string& url) {
  if (reply.status < 200 || reply.status > 299) {
    const std::string line = FirstLine(reply);
    return {ErrorKind::kIo, url + " answered " + std::to_string(reply.status) +
                                (line.empty() ? "" : " (" + line + ")") + ": " +
                                AdviceFor(reply.status)};
  }
  const auto type = reply.headers.find("content-type");
  const std::string named = type == reply.headers.end() ? "" : type->second;
  if (reply.body.empty() || named.starts_with("application/json")) return {};
  const Result<DecodedAnswer> answer = DecodeLogsAnswer(reply.body);
  if (!named.starts_with(kOtlpType) || !answer.ok())
    return {ErrorKind::kIo,
            "what answers at " + url + " is no OTLP/HTTP receiver: " + AdviceFor(404)};
  if (answer->rejected == 0) return {};
  return {ErrorKind::kIo, url + " rejected " + std::to_string(answer->rejected) +
                              " of them: " + Printable(answer->reason)};
}

struct Taken {
  size_t count = 0;
  size_t all = 0;
};

template <typename Requests>
Status SendAll(const Requests& requests, const std::string& path, const std::string& url,
               const OtlpPost& post, Taken& taken) {
  for (const auto& request : requests) {
    const Result<HttpReply> reply = post(path, request.SerializeAsString());
    Status status =
        reply.ok() ? WhatItSays(*reply, url + path)
                   : Status(reply.status().kind(), reply.status().message() + ": " + AdviceFor(0));
    if (!status.ok()) {
      const std::string before =
          taken.count == 0 ? "nothing was exported: "
                           : std::to_string(taken.count) + " of " + std::to_string(taken.all) +
                                 " requests were exported, the next was not: ";
      return {status.kind(), before + status.message()};
    }
    ++taken.count;
  }
  return {};
}

}  // namespace

Status SendOtlp(const OtlpExport& exported, const std::string& url, const OtlpPost& post) {
  Taken taken{.all = exported.logs.size() + exported.metrics.size()};
  if (Status sent = SendAll(exported.logs, "/v1/logs", url, post, taken); !sent.ok()) return sent;
  return SendAll(exported.metrics, "/v1/metrics", url, post, taken);
}

}  // namespace nanwatch
