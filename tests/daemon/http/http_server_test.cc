// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/unique_fd.h"
#include "daemon/http/http_access.h"

namespace nanwatch {
namespace {

// A connection with a request on it.
UniqueFd Ask(int port) {
  UniqueFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const bool is_sent =
      connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      send(connection.get(), request.data(), request.size(), 0) ==
          static_cast<ssize_t>(request.size());
  if (!is_sent) connection.Close();
  return connection;
}

TEST(HttpServer, NoRequestWaitsForTheEndOfAnother) {
  constexpr int kRequests = 40;
  std::mutex mutex;
  std::condition_variable changed;
  int asked = 0;
  bool is_over = false;
  const auto server = HttpServer::Bind({.address = "127.0.0.1"}, [&](const HttpRequest&) {
    std::unique_lock<std::mutex> lock(mutex);
    ++asked;
    changed.notify_all();
    changed.wait(lock, [&] { return asked >= kRequests || is_over; });
    return HttpAnswer();
  });
  ASSERT_TRUE(server.ok()) << server.status().message();
  std::thread serving([&] { (*server)->Serve(); });
  std::vector<UniqueFd> connections;
  connections.reserve(kRequests);
  for (int i = 0; i < kRequests; ++i) connections.push_back(Ask((*server)->port()));
  {
    std::unique_lock<std::mutex> lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] {
      return asked >= kRequests;
    })) << asked;
    is_over = true;
    changed.notify_all();
  }
  connections.clear();
  (*server)->Stop();
  serving.join();
}

TEST(HttpServer, AnswersToAddressesAndItsOwnNamesAlone) {
  const std::vector<std::string> names = {"Node7", "gpu.example.org"};
  for (const char* host : {"127.0.0.1:0", "localhost", "LOCALHOST:1", "[::1]:9464", "10.0.0.7",
                           "node7:9464", "gpu.example.org"})
    EXPECT_TRUE(IsOwnHost(host, names)) << host;
  // A page of theirs would be of the same origin as ours, once their name leads here.
  for (const char* host : {"", "attacker.example", "127.0.0.1.attacker.example", "localhost.evil",
                           "[::1", "node7.attacker.example", "[]", ":9464"})
    EXPECT_FALSE(IsOwnHost(host, names)) << host;
  EXPECT_FALSE(IsOwnHost("", {""}));
}

TEST(HttpServer, TakesTheTokenAsBearerOrAsAPassword) {
  EXPECT_TRUE(HasToken("Bearer 0123456789abcdef", "0123456789abcdef"));
  EXPECT_TRUE(HasToken("Basic YW55Ym9keTowMTIzNDU2Nzg5YWJjZGVm", "0123456789abcdef"));
  for (const char* header :
       {"", "Bearer ", "Bearer 0123456789abcdee", "bearer0123456789abcdef", "0123456789abcdef",
        "Basic MDEyMzQ1Njc4OWFiY2RlZg==", "Basic ****", "Bearer 0123456789abcdef "})
    EXPECT_FALSE(HasToken(header, "0123456789abcdef")) << header;
}

TEST(HttpServer, SaysWhatToDoWhereItCannotListen) {
  const HttpAnswerer nothing = [](const HttpRequest&) { return HttpAnswer(); };
  const HttpServerOptions any_port = {.address = "127.0.0.1", .port = 0, .tokens = {}, .names = {}};
  const auto first = HttpServer::Bind(any_port, nothing);
  ASSERT_TRUE(first.ok()) << first.status().message();
  HttpServerOptions same = any_port;
  same.port = (*first)->port();
  const auto second = HttpServer::Bind(same, nothing);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("is in use: stop what listens there"), std::string::npos)
      << second.status().message();
  HttpServerOptions foreign = any_port;
  foreign.address = "192.0.2.1";
  EXPECT_FALSE(HttpServer::Bind(foreign, nothing).ok());
}

}  // namespace
}  // namespace nanwatch
