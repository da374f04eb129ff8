// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "daemon/http/gzip.h"
#include "daemon/http/http_server.h"
#include "daemon/http/request_name.h"

namespace nanwatch {
namespace {

// A server of this process, at a port of its own.
class HttpClientTest : public testing::Test {
 protected:
  void Serve(HttpServerOptions options, HttpAnswerer answerer) {
    options.address = "127.0.0.1";
    Result<std::unique_ptr<HttpServer>> bound = HttpServer::Bind(options, std::move(answerer));
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    server_ = *std::move(bound);
    thread_ = std::thread([this] { server_->Serve(); });
  }
  std::unique_ptr<HttpClient> Client(std::function<bool()> is_cancelled = {}) {
    Result<std::unique_ptr<HttpClient>> made =
        HttpClient::Make({.url = "http://127.0.0.1:" + std::to_string(server_->port()),
                          .is_cancelled = std::move(is_cancelled)});
    if (!made.ok()) return nullptr;
    return *std::move(made);
  }
  ~HttpClientTest() override {
    if (server_ == nullptr) return;
    server_->Stop();
    thread_.join();
  }

  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(HttpClientTest, GivesTheHeadersOfTheAnswer) {
  Serve({.address = "", .body_bytes_max = 1'000, .headers = {{"Nanwatch-Gather", "1"}}},
        [](const HttpRequest& request) { return HttpAnswer{.body = request.body}; });
  const std::unique_ptr<HttpClient> client = Client();
  if (client == nullptr) GTEST_SKIP() << "libcurl is not installed";
  const Result<HttpReply> reply = client->Post("/v1/logs", "text/plain", Gzip("rows"), {});
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "rows");
  ASSERT_TRUE(reply->headers.contains("nanwatch-gather"));
  EXPECT_EQ(reply->headers.at("nanwatch-gather"), "1");
  const Result<HttpReply> refused =
      client->Post("/", "text/plain", Gzip(std::string(2'000, 'x')), {});
  ASSERT_TRUE(refused.ok()) << refused.status().message();
  EXPECT_EQ(refused->status, 413);
  EXPECT_TRUE(refused->headers.contains("nanwatch-gather")) << "each answer names who gives it";
}

// What came once more for an earlier one is seen by that: tests/faults/fleet sends such answers.
TEST_F(HttpClientTest, EachAnswerHasTheNameOfItsRequest) {
  Serve({.address = ""}, [](const HttpRequest&) { return HttpAnswer(); });
  const std::unique_ptr<HttpClient> client = Client();
  if (client == nullptr) GTEST_SKIP() << "libcurl is not installed";
  std::set<std::string> names;
  for (int i = 0; i < 3; ++i) {
    const Result<HttpReply> reply = client->Get("/", "text/plain");
    ASSERT_TRUE(reply.ok()) << reply.status().message();
    ASSERT_TRUE(reply->headers.contains(kRequestNameHeader));
    names.insert(reply->headers.at(kRequestNameHeader));
  }
  EXPECT_EQ(names.size(), 3u);
}

TEST_F(HttpClientTest, LeavesARequestThatIsCancelledWithinASecondOrTwo) {
  std::promise<void> asked;
  std::promise<void> answer_now;
  Serve({.address = ""}, [&](const HttpRequest&) {
    asked.set_value();
    answer_now.get_future().wait();
    return HttpAnswer();
  });
  std::atomic<bool> is_cancelled{false};
  const std::unique_ptr<HttpClient> client = Client([&] { return is_cancelled.load(); });
  if (client == nullptr) GTEST_SKIP() << "libcurl is not installed";
  std::future<Result<HttpReply>> reply =
      std::async(std::launch::async, [&] { return client->Get("/", "text/plain"); });
  asked.get_future().wait();
  is_cancelled = true;
  // The answer comes only after it: a client that waits for one is seen here.
  const bool left = reply.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
  answer_now.set_value();
  EXPECT_TRUE(left);
  EXPECT_EQ(reply.get().status().kind(), ErrorKind::kIo);
}

TEST_F(HttpClientTest, GivesTheConnectionsOfManyToThoseWhoCome) {
  Serve({.address = "", .connections_max = 4}, [](const HttpRequest&) { return HttpAnswer(); });
  std::vector<std::unique_ptr<HttpClient>> clients;
  // More than there are threads, and none of them leaves. Some find two others there, and are told
  // to: an idle connection that sees them goes, too, within a second.
  int told = 0;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(Client());
    if (clients.back() == nullptr) GTEST_SKIP() << "libcurl is not installed";
    const Result<HttpReply> reply = clients.back()->Get("/", "text/plain");
    ASSERT_TRUE(reply.ok()) << i << ": " << reply.status().message();
    const auto connection = reply->headers.find("connection");
    if (connection != reply->headers.end() && connection->second == "close") ++told;
  }
  EXPECT_GT(told, 0);
}

TEST_F(HttpClientTest, BoundsAllBodiesThatItHoldsAtOnce) {
  std::promise<void> asked;
  std::promise<void> answer_now;
  std::atomic<int> requests{0};
  Serve({.address = "", .body_bytes_max = 1'000, .bodies_bytes_max = 1'000},
        [&](const HttpRequest&) {
          if (requests++ > 0) return HttpAnswer();
          asked.set_value();
          answer_now.get_future().wait();
          return HttpAnswer();
        });
  const std::unique_ptr<HttpClient> first = Client();
  const std::unique_ptr<HttpClient> second = Client();
  if (first == nullptr) GTEST_SKIP() << "libcurl is not installed";
  const std::string body = Gzip(std::string(600, 'x'));
  std::future<Result<HttpReply>> slow =
      std::async(std::launch::async, [&] { return first->Post("/", "text/plain", body, {}); });
  asked.get_future().wait();
  const Result<HttpReply> refused = second->Post("/", "text/plain", body, {});
  answer_now.set_value();
  ASSERT_TRUE(refused.ok()) << refused.status().message();
  EXPECT_EQ(refused->status, 429);
  EXPECT_GT(refused->retry_after_s, 0);
  EXPECT_EQ(slow.get()->status, 200);
  EXPECT_EQ(second->Post("/", "text/plain", body, {})->status, 200) << "there is room again";
}

TEST(HttpClientUrl, KnowsWhereATokenCanBeRead) {
  for (const char* url : {"https://gather.example.org", "http://127.0.0.1:0", "http://localhost:0",
                          "http://[::1]:0", "http://127.0.0.1"})
    EXPECT_FALSE(IsPlainToOthers(url)) << url;
  for (const char* url : {"http://gather.example.org", "http://10.0.0.7:0", "http://[fd00::1]",
                          "http://localhost.example.org", "http://localhost@evil.example"})
    EXPECT_TRUE(IsPlainToOthers(url)) << url;
}

}  // namespace
}  // namespace nanwatch
