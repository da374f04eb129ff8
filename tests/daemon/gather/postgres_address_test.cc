// SPDX-License-Identifier: Apache-2.0
#include "daemon/gather/postgres_address.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(PostgresAddress, WaitsForNoServerForLongUnlessTheUserSaysSo) {
  for (const char* given : {"host=db dbname=nanwatch", "postgresql://db/nanwatch"}) {
    const Result<std::string> whole = WithTimeouts(given);
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    EXPECT_TRUE(Has(*whole, "connect_timeout='10'")) << *whole;
    EXPECT_TRUE(Has(*whole, "tcp_user_timeout='30000'")) << *whole;
    EXPECT_TRUE(Has(*whole, "host='db'")) << *whole;
  }
  EXPECT_TRUE(Has(*WithTimeouts("user='it\\'s'"), "user='it\\'s'"));
  const Result<std::string> asked = WithTimeouts("host=db connect_timeout=3 tcp_user_timeout=0");
  ASSERT_TRUE(asked.ok());
  EXPECT_TRUE(Has(*asked, "connect_timeout='3'"));
  EXPECT_TRUE(Has(*asked, "tcp_user_timeout='0'"));
}

TEST(PostgresAddress, SaysWhatIsNoConnection) {
  const Result<std::string> wrong = WithTimeouts("hots=db");
  ASSERT_EQ(wrong.status().kind(), ErrorKind::kInvalid);
  EXPECT_TRUE(Has(wrong.status().message(), "hots")) << wrong.status().message();
}

}  // namespace
}  // namespace nanwatch
