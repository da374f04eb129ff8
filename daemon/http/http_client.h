// SPDX-License-Identifier: Apache-2.0
// An HTTP and HTTPS client for one server. The only file that knows libcurl, which is loaded when a
// client is made: a host that sends nothing need not have it. Proxies are those of the environment
// (https_proxy, no_proxy). Redirects are not followed.
//
// One connection, kept open. One thread an object.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "daemon/base/status.h"

namespace nanwatch {

struct HttpClientOptions {
  std::string url;                    // http://host:4318 or https://..., without a path
  std::string token_file = {};        // its token is sent as Bearer; read anew when it is refused
  std::string ca_file = {};           // of the authorities to trust; "": those of the system
  std::string certificate_file = {};  // our own, PEM
  std::string key_file = {};
  int timeout_s = 60;  // of a whole request
};

struct HttpReply {
  int status = 0;
  int retry_after_s = 0;  // 0: the server did not say
  std::string body = {};
};

class HttpClient {
 public:
  // kInvalid: options that make no sense; kNotFound: libcurl is not there, with what to do.
  [[nodiscard]] static Result<std::unique_ptr<HttpClient>> Make(const HttpClientOptions& options);
  virtual ~HttpClient() = default;

  // Any status is a reply. kIo: there was none, with the reason.
  [[nodiscard]] virtual Result<HttpReply> Get(const std::string& path,
                                              const std::string& accept) = 0;
  // `body` is as of Content-Encoding: gzip.
  [[nodiscard]] virtual Result<HttpReply> Post(const std::string& path, const std::string& type,
                                               const std::string& body) = 0;
};

}  // namespace nanwatch
