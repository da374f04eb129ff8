// SPDX-License-Identifier: Apache-2.0
#include "tools/fleet_question.h"

#include <memory>

#include "daemon/report/text_layout.h"

namespace nanwatch {
namespace {

constexpr int kRanksNamed = 16;

// As a part of a path.
std::string Escaped(const std::string& text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  constexpr char kPlain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~@";
  std::string escaped;
  for (const char c : text) {
    if (std::string(kPlain).find(c) != std::string::npos) {
      escaped += c;
      continue;
    }
    escaped += '%';
    escaped += kDigits[static_cast<unsigned char>(c) >> 4];
    escaped += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return escaped;
}

}  // namespace

Result<FleetVerdict> AskFleetVerdict(const HttpClientOptions& fleet, const std::string& job) {
  const Result<std::unique_ptr<HttpClient>> client = HttpClient::Make(fleet);
  if (!client.ok()) return client.status();
  const Result<HttpReply> reply =
      (*client)->Get("/api/v1/jobs/" + Escaped(job) + "/verdict", "application/x-protobuf");
  if (!reply.ok()) return reply.status();
  const std::string words = Printable(reply->body.substr(0, reply->body.find('\n')));
  if (reply->status != 200)
    return Status(reply->status == 404 ? ErrorKind::kNotFound : ErrorKind::kIo,
                  "the gatherer answered " + std::to_string(reply->status) + ": " + words);
  FleetVerdict verdict;
  if (!verdict.ParseFromString(reply->body))
    return Status(ErrorKind::kCorrupt, "what answered at " + fleet.url + " is no gatherer");
  return verdict;
}

std::string SilentRanks(const FleetVerdict& verdict) {
  const int silent = verdict.ranks_expected() - verdict.ranks_heard();
  if (silent <= 0) return "";
  std::string text = std::to_string(silent) + " of " + std::to_string(verdict.ranks_expected()) +
                     (silent == 1 ? " ranks was not heard of:" : " ranks were not heard of:");
  for (int i = 0; i < verdict.ranks_silent_size() && i < kRanksNamed; ++i)
    text += (i == 0 ? " " : ", ") + std::to_string(verdict.ranks_silent(i));
  return silent > kRanksNamed ? text + ", ..." : text;
}

}  // namespace nanwatch
