// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_server.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

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
  const HttpServerOptions any_port = {.address = "127.0.0.1", .port = 0, .token = "", .names = {}};
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
