// SPDX-License-Identifier: Apache-2.0
// An HTTP server for a few pages of text: GET and HEAD, no cookie, no redirect; and POST where
// bodies are asked for. The only file that knows cpp-httplib.
//
// What it refuses before anybody is asked: other methods (405), a Host that could be somebody
// else's name for this address (421), a missing or wrong token (401), a body where none is asked
// for or one that is too long before or after it is inflated (413), long or many headers (4xx). A
// body that did not arrive whole is 408, one more than `bodies_bytes_max` takes is 429: both may be
// sent again. A connection waits kHttpFirstSeconds for its first request and kHttpIdleSeconds for
// each other, has kHttpRequestMs to send one, and lasts kHttpConnectionSeconds. Where most of
// `connections_max` are open, each has one request and is closed, so that all have their turn.
// Beyond `connections_max` at once, and as many that wait, connections are closed at once.
//
// An answer has the name that its request was given (request_name.h).
//
// Answers are asked for in several threads.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/status.h"

namespace nanwatch {

inline constexpr int kHttpConnectionsMax = 64;
inline constexpr int kHttpRequestMs = 10'000;
inline constexpr int kHttpFirstSeconds = 5;
inline constexpr int kHttpIdleSeconds = 20;
inline constexpr int kHttpConnectionSeconds = 300;

struct HttpRequest {
  std::string path;         // decoded, without query
  std::string accept;       // the header
  std::string tenant = {};  // of the token that it has; "" where one token is for all
  bool is_post = false;
  std::string type = {};                            // Content-Type, of a POST
  std::string body = {};                            // of a POST, inflated
  std::map<std::string, std::string> headers = {};  // those of HttpServerOptions::headers_taken
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
  std::string policy = "default-src 'none'";                      // Content-Security-Policy
  int retry_after_s = 0;                                          // Retry-After; 0: none
  std::vector<std::pair<std::string, std::string>> headers = {};  // further ones
};

// A token, and the tenant that is known by it; several may be of one.
struct HttpToken {
  std::string tenant = {};
  std::string token = {};
};

using HttpAnswerer = std::function<HttpAnswer(const HttpRequest&)>;

struct HttpServerOptions {
  std::string address = {};             // an IPv4 or IPv6 address, or localhost
  int port = 0;                         // 0: any that is free
  std::vector<HttpToken> tokens = {};   // one of them is asked for; empty: none
  std::vector<std::string> names = {};  // that a Host may have besides addresses and localhost
  size_t body_bytes_max = 0;            // of a POST, plain and inflated; 0: there is no POST
  // Of all bodies that are read or being answered, inflated; 0: no bound. Memory holds about twice
  // as much.
  size_t bodies_bytes_max = 0;
  size_t connections_max = kHttpConnectionsMax;
  bool any_host = false;  // a Host may be any name: for clients that are no browsers, with a token
  // What else to do where a Host is refused: "or start 'nanwatch serve' with --host NAME".
  std::string other_host_advice = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // of each answer
  std::vector<std::string> headers_taken = {};                    // of a POST, handed on
  std::function<void(int status)> on_failure = {};  // an answer of 400 or more; in several threads
};

class HttpServer {
 public:
  // Binds and does not answer yet. The message of a failure says what to do.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> Bind(const HttpServerOptions& options,
                                                                HttpAnswerer answerer);
  virtual ~HttpServer() = default;

  [[nodiscard]] virtual int port() const = 0;
  // Answers until Stop().
  virtual void Serve() = 0;
  // From any thread.
  virtual void Stop() = 0;
};

}  // namespace nanwatch
