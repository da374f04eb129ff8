// SPDX-License-Identifier: Apache-2.0
// An HTTP and HTTPS client for one server. The only file that knows libcurl, which is loaded when a
// client is made: a host that sends nothing need not have it. 7.74 (Debian 11) and newer will do.
// Proxies are those of the environment (https_proxy, no_proxy). Redirects are not followed.
//
// One connection, kept open. One thread an object.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/status.h"

namespace nanwatch {

struct HttpClientOptions {
  std::string url;                    // http://host:4318 or https://..., without a path
  std::string token_file = {};        // its token is sent as Bearer; read anew when it is refused
  std::string ca_file = {};           // of the authorities to trust; "": those of the system
  std::string certificate_file = {};  // our own, PEM
  std::string key_file = {};
  int timeout_s = 60;  // of a whole request
  // Asked about once a second while a request runs, in its thread; true ends the request with kIo.
  std::function<bool()> is_cancelled = {};
};

struct HttpReply {
  int status = 0;
  int retry_after_s = 0;                            // 0: the server did not say
  std::map<std::string, std::string> headers = {};  // by name, in lower case
  std::string body = {};
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The scheme of `url` is http, and its host is not this one: who is on the way can read a token.
[[nodiscard]] bool IsPlainToOthers(const std::string& url);
inline constexpr char kTokenIsPlain[] =
    "the token goes over plain http, where others on the network can read it: use https, by a "
    "proxy "
    "with TLS in front of the gatherer";

class HttpClient {
 public:
  // kInvalid: options that make no sense; kNotFound: libcurl is not there, with what to do.
  [[nodiscard]] static Result<std::unique_ptr<HttpClient>> Make(const HttpClientOptions& options);
  virtual ~HttpClient() = default;

  // Any status is a reply. kIo: there was none, with the reason; or there was one to another
  // request (request_name.h).
  [[nodiscard]] virtual Result<HttpReply> Get(const std::string& path,
                                              const std::string& accept) = 0;
  [[nodiscard]] virtual Result<HttpReply> PostPlain(const std::string& path,
                                                    const std::string& type,
                                                    const std::string& body) = 0;
  // `body` is as of Content-Encoding: gzip. `headers` are further ones.
  [[nodiscard]] virtual Result<HttpReply> Post(const std::string& path, const std::string& type,
                                               const std::string& body,
                                               const HttpHeaders& headers) = 0;
};

}  // namespace nanwatch
