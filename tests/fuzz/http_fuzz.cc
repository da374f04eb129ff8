// SPDX-License-Identifier: Apache-2.0
// Whatever a client sends, the server answers it or closes the connection, and answers the next. A
// libFuzzer target: the bytes go to a real server over a real connection.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "daemon/base/unique_fd.h"
#include "daemon/http/http_server.h"

namespace nanwatch {
namespace {

constexpr size_t kBodyBytesMax = 4096;

HttpAnswer Echo(const HttpRequest& request) {
  if (request.body.size() > kBodyBytesMax) std::abort();
  return {.body = request.path + request.accept + request.type + request.body};
}

// Lives as long as the process.
int ServerPort() {
  static const int port = [] {
    auto server = HttpServer::Bind({.address = "127.0.0.1",
                                    .body_bytes_max = kBodyBytesMax,
                                    .bodies_bytes_max = 4 * kBodyBytesMax},
                                   Echo);
    if (!server.ok()) std::abort();
    HttpServer* lasting = server->release();
    std::thread([lasting] { lasting->Serve(); }).detach();
    return lasting->port();
  }();
  return port;
}

// All that comes back until the connection is closed.
std::string Exchange(std::string_view sent) {
  UniqueFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(ServerPort()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return "";
  while (!sent.empty()) {
    const ssize_t done = send(connection.get(), sent.data(), sent.size(), MSG_NOSIGNAL);
    if (done <= 0) break;
    sent.remove_prefix(static_cast<size_t>(done));
  }
  shutdown(connection.get(), SHUT_WR);
  std::string answer;
  char piece[4096];
  for (ssize_t got = 0; (got = recv(connection.get(), piece, sizeof piece, 0)) > 0;)
    answer.append(piece, static_cast<size_t>(got));
  return answer;
}

void TryOne(std::string_view sent) {
  static uint64_t rounds = 0;
  const std::string answer = Exchange(sent);
  if (!answer.empty() && !answer.starts_with("HTTP/1.1 ")) std::abort();
  if (++rounds % 256 != 0) return;
  // The next one has an answer.
  const std::string next = Exchange("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  if (!next.starts_with("HTTP/1.1 200 ")) std::abort();
}

}  // namespace
}  // namespace nanwatch

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nanwatch::TryOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
