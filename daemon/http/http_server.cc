// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_server.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

// How often a connection that waits wakes up, to see whether the server has stopped.
#define CPPHTTPLIB_KEEPALIVE_TIMEOUT_CHECK_INTERVAL_USECOND 250'000
#define CPPHTTPLIB_REQUEST_URI_MAX_LENGTH 2048
#define CPPHTTPLIB_HEADER_MAX_LENGTH 4096
#define CPPHTTPLIB_HEADER_MAX_COUNT 64
#define CPPHTTPLIB_LISTEN_BACKLOG 256
// Inflates a body piece by piece, and stops where it is too long.
#define CPPHTTPLIB_ZLIB_SUPPORT
#include "cpp-httplib/httplib.hpp"
#include "daemon/http/connection_threads.h"
#include "daemon/http/http_access.h"
#include "daemon/http/request_name.h"

namespace nanwatch {
namespace {

constexpr int kRequestsPerConnection = 10'000;
constexpr int kBusyRetrySeconds = 1;

// cpp-httplib bounds each wait of a connection, and not a request as a whole: a client that sends a
// byte now and then would hold a thread for good. It also waits for another request after one that
// made no sense.
class BoundedServer final : public httplib::Server {
 public:
  // To be called for each request that was read whole, in its thread; and where that was too early.
  static void OnRequest() { request_read_ = true; }
  static void OnUnreadBody() { request_read_ = false; }

  // At so many open connections each has one request more.
  void SetManyConnections(size_t count) { many_connections_ = count; }

 private:
  using Time = std::chrono::steady_clock;

  bool process_and_close_socket(socket_t socket) override {
    const Time::time_point opened_at = Time::now();
    ++connections_;
    for (int i = 0; i < kRequestsPerConnection; ++i) {
      if (!AwaitRequest(socket, i == 0 ? kHttpFirstSeconds : kHttpIdleSeconds, i == 0)) break;
      const bool is_old = Time::now() - opened_at > std::chrono::seconds(kHttpConnectionSeconds);
      if (!Process(socket, is_old || AreMany() || i + 1 == kRequestsPerConnection)) break;
    }
    --connections_;
    httplib::detail::shutdown_socket(socket);
    httplib::detail::close_socket(socket);
    return true;
  }

  // An idle connection gives its thread to others where many are open.
  bool AwaitRequest(socket_t socket, int seconds, bool is_first) {
    for (int i = 0; i < seconds; ++i) {
      if (httplib::detail::keep_alive(svr_sock_, socket, 1)) return true;
      if (svr_sock_ == INVALID_SOCKET || (!is_first && AreMany())) return false;
    }
    return false;
  }

  [[nodiscard]] bool AreMany() const { return connections_ >= many_connections_; }

  // Whether the connection may have another request.
  bool Process(socket_t socket, bool is_last) {
    std::string remote_address, local_address;
    int remote_port = 0, local_port = 0;
    httplib::detail::get_remote_ip_and_port(socket, remote_address, remote_port);
    httplib::detail::get_local_ip_and_port(socket, local_address, local_port);
    httplib::detail::SocketStream stream(socket, read_timeout_sec_, read_timeout_usec_,
                                         write_timeout_sec_, write_timeout_usec_, kHttpRequestMs,
                                         std::chrono::steady_clock::now());
    stream.set_readable_hint();
    request_read_ = false;
    bool closed = false;
    // Answers go out as they are: to compress them costs more than it saves.
    const auto take_plain = [](httplib::Request& request) {
      request.headers.erase("Accept-Encoding");
    };
    const bool done = process_request(stream, remote_address, remote_port, local_address,
                                      local_port, is_last, closed, take_plain);
    return done && !closed && request_read_;
  }

  static thread_local bool request_read_;
  std::atomic<size_t> connections_{0};
  size_t many_connections_ = kHttpConnectionsMax;
};

thread_local bool BoundedServer::request_read_ = false;

class ConnectionQueue final : public httplib::TaskQueue {
 public:
  explicit ConnectionQueue(size_t connections_max) : threads_(connections_max, connections_max) {}
  bool enqueue(std::function<void()> job) override { return threads_.Run(std::move(job)); }
  void shutdown() override { threads_.End(); }

 private:
  ConnectionThreads threads_;
};

void Fill(const HttpAnswer& answer, const HttpServerOptions& options, httplib::Response& response) {
  response.status = answer.status;
  response.set_header("Content-Security-Policy", answer.policy + "; frame-ancestors 'none'");
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_header("Cross-Origin-Resource-Policy", "same-origin");
  response.set_header("Cache-Control", "no-store");
  if (answer.retry_after_s > 0)
    response.set_header("Retry-After", std::to_string(answer.retry_after_s));
  for (const auto& [name, value] : options.headers) response.set_header(name, value);
  for (const auto& [name, value] : answer.headers) response.set_header(name, value);
  if (answer.status >= 400 && options.on_failure) options.on_failure(answer.status);
  response.set_content(answer.body, answer.type);
}

const char* Methods(const HttpServerOptions& options) {
  return options.body_bytes_max > 0 ? "GET, HEAD, POST" : "GET, HEAD";
}

bool HasBody(const httplib::Request& request) {
  return request.has_header("Content-Length") || request.has_header("Transfer-Encoding");
}

// What a body is answered that could not be read, by what the library says of it.
HttpAnswer UnreadBody(int status) {
  if (status == 413) return {.status = 413, .body = "the body is too long: send less at once\n"};
  if (status == 415) return {.status = 415, .body = "send the body as it is, or with gzip\n"};
  // It was slow, or broke off. Whether it is well is not known.
  return {.status = 408, .body = "the body did not arrive whole: send it again\n"};
}

// Takes as long whichever of them it has. Null: it has none.
const HttpToken* TokenOf(const httplib::Request& request, const HttpServerOptions& options) {
  const std::string authorization = request.get_header_value("Authorization");
  const HttpToken* known = nullptr;
  for (const HttpToken& token : options.tokens) {
    if (HasToken(authorization, token.token)) known = &token;
  }
  return known;
}

// What is refused, whatever the path.
HttpAnswer Refusal(const httplib::Request& request, const HttpServerOptions& options) {
  const bool is_post = request.method == "POST" && options.body_bytes_max > 0;
  if (request.method != "GET" && request.method != "HEAD" && !is_post)
    return {.status = 405,
            .body = std::string("only ") + Methods(options) + " are answered here\n"};
  if (!is_post && HasBody(request)) return {.status = 413, .body = "a request has no body here\n"};
  if (request.get_header_value_count("Host") != 1 ||
      (!options.any_host && !IsOwnHost(request.get_header_value("Host"), options.names))) {
    return {.status = 421,
            .body = "this host name is not served here: use an address or localhost" +
                    options.other_host_advice + "\n"};
  }
  if (!options.tokens.empty() && TokenOf(request, options) == nullptr) {
    return {.status = 401,
            .body =
                "a token is needed: send it as 'Authorization: Bearer TOKEN', or as the "
                "password of Basic\n"};
  }
  return {};
}

// Bytes of bodies in memory, of all connections of a server.
class BodyRoom {
 public:
  explicit BodyRoom(size_t bytes_max) : bytes_max_(bytes_max) {}
  // A part of it, given back when the object ends.
  class Part {
   public:
    explicit Part(BodyRoom& room) : room_(room) {}
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    ~Part() { room_.taken_ -= bytes_; }
    // False, and nothing is taken, where there is not so much left.
    bool Take(size_t bytes) {
      if (room_.taken_.fetch_add(bytes) + bytes > room_.bytes_max_ && room_.bytes_max_ != 0) {
        room_.taken_ -= bytes;
        return false;
      }
      bytes_ += bytes;
      return true;
    }

   private:
    BodyRoom& room_;
    size_t bytes_ = 0;
  };

 private:
  const size_t bytes_max_;
  std::atomic<size_t> taken_{0};
};

class Httplib final : public HttpServer {
 public:
  Httplib(HttpServerOptions options, HttpAnswerer answerer)
      : options_(std::move(options)),
        answerer_(std::move(answerer)),
        room_(options_.bodies_bytes_max) {
    const size_t connections_max = options_.connections_max;
    server_.SetManyConnections(std::max<size_t>(1, connections_max / 4 * 3));
    server_.new_task_queue = [connections_max] { return new ConnectionQueue(connections_max); };
    server_.set_read_timeout(5);
    server_.set_write_timeout(5);
    server_.set_payload_max_length(options_.body_bytes_max);
    server_.set_tcp_nodelay(true);
    // SO_REUSEPORT, which is the library's own choice, would let another process share the port.
    server_.set_socket_options([](socket_t socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    });
    server_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          return Answer(request, response);
        });
    server_.Post("/.*",
                 [this](const httplib::Request& request, httplib::Response& response,
                        const httplib::ContentReader& reader) { Take(request, response, reader); });
    // Of every answer, whoever made it.
    server_.set_post_routing_handler(
        [](const httplib::Request& request, httplib::Response& response) {
          const std::string name = request.get_header_value(kRequestNameHeader);
          if (!name.empty() && name.size() <= kRequestNameBytesMax)
            response.set_header(kRequestNameHeader, name);
        });
    server_.set_exception_handler(
        [this](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
          Fill({.status = 500, .body = "the answer could not be made\n"}, options_, response);
        });
  }

  [[nodiscard]] bool Bind() {
    port_ = options_.port == 0 ? server_.bind_to_any_port(options_.address)
            : server_.bind_to_port(options_.address, options_.port) ? options_.port
                                                                    : -1;
    return port_ > 0;
  }

  [[nodiscard]] int port() const override { return port_; }
  void Serve() override { server_.listen_after_bind(); }
  void Stop() override { server_.stop(); }

 private:
  // A POST goes on to Take, which reads its body first.
  httplib::Server::HandlerResponse Answer(const httplib::Request& request,
                                          httplib::Response& response) {
    BoundedServer::OnRequest();
    if (request.method == "POST" && options_.body_bytes_max > 0) {
      if (request.get_header_value_u64("Content-Length") <= options_.body_bytes_max)
        return httplib::Server::HandlerResponse::Unhandled;
      BoundedServer::OnUnreadBody();
      Fill(UnreadBody(413), options_, response);
      return httplib::Server::HandlerResponse::Handled;
    }
    // What is not read would be taken for the next request.
    if (HasBody(request)) BoundedServer::OnUnreadBody();
    FillOrRefuse(request, {.path = request.path, .accept = request.get_header_value("Accept")},
                 response);
    return httplib::Server::HandlerResponse::Handled;
  }

  // Of a request that is refused the body is read too, and thrown away: where a connection is
  // closed with bytes unread, the client may never see the answer.
  void Take(const httplib::Request& request, httplib::Response& response,
            const httplib::ContentReader& reader) {
    const bool refused = Refusal(request, options_).status != 200;
    HttpRequest asked = {.path = request.path,
                         .accept = request.get_header_value("Accept"),
                         .is_post = true,
                         .type = request.get_header_value("Content-Type")};
    for (const std::string& name : options_.headers_taken) {
      if (request.has_header(name)) asked.headers[name] = request.get_header_value(name);
    }
    BodyRoom::Part room(room_);
    bool has_room = true;
    const bool whole = reader([&](const char* bytes, size_t count) {
      has_room = refused || room.Take(count);
      if (has_room && !refused) asked.body.append(bytes, count);
      return has_room;
    });
    if (whole || refused) FillOrRefuse(request, std::move(asked), response);
    if (whole) return;
    BoundedServer::OnUnreadBody();
    if (!has_room) {
      Fill({.status = 429,
            .body = "too much arrives at once: send it later\n",
            .retry_after_s = kBusyRetrySeconds},
           options_, response);
    } else if (!refused) {
      Fill(UnreadBody(response.status), options_, response);
    }
  }

  void FillOrRefuse(const httplib::Request& request, HttpRequest asked,
                    httplib::Response& response) {
    HttpAnswer answer = Refusal(request, options_);
    if (answer.status == 401)
      response.set_header("WWW-Authenticate", "Basic realm=\"nanwatch\", charset=\"UTF-8\"");
    if (answer.status == 405) response.set_header("Allow", Methods(options_));
    if (answer.status == 200) {
      if (const HttpToken* token = TokenOf(request, options_)) asked.tenant = token->tenant;
      answer = answerer_(asked);
    }
    Fill(answer, options_, response);
  }

  HttpServerOptions options_;
  HttpAnswerer answerer_;
  BodyRoom room_;
  BoundedServer server_;
  int port_ = -1;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Bind(const HttpServerOptions& options,
                                                     HttpAnswerer answerer) {
  auto server = std::make_unique<Httplib>(options, std::move(answerer));
  errno = 0;
  if (server->Bind()) return std::unique_ptr<HttpServer>(std::move(server));
  const int error = errno;
  const std::string where = options.address + ":" + std::to_string(options.port);
  if (error == EADDRINUSE)
    return Status(ErrorKind::kBusy, where +
                                        " is in use: stop what listens there, or name another "
                                        "port with --listen ADDRESS:PORT");
  return Status(ErrorKind::kInvalid,
                "nothing can listen on " + where + " (" + strerror(error != 0 ? error : EINVAL) +
                    "): name an address of this host with --listen ADDRESS:PORT");
}

}  // namespace nanwatch
