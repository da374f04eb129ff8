// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/curl_abi.h"

#include <gtest/gtest.h>

#if __has_include(<curl/curl.h>)
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>
#endif

namespace nanwatch {
namespace {

TEST(CurlAbi, IsThatOfTheInstalledHeader) {
#ifdef LIBCURL_VERSION_NUM
  EXPECT_EQ(curl::kTimeout, static_cast<int>(CURLOPT_TIMEOUT));
  EXPECT_EQ(curl::kNoProgress, static_cast<int>(CURLOPT_NOPROGRESS));
  EXPECT_EQ(curl::kPost, static_cast<int>(CURLOPT_POST));
  EXPECT_EQ(curl::kConnectTimeout, static_cast<int>(CURLOPT_CONNECTTIMEOUT));
  EXPECT_EQ(curl::kNoSignal, static_cast<int>(CURLOPT_NOSIGNAL));
  EXPECT_EQ(curl::kProtocols, static_cast<int>(CURLOPT_PROTOCOLS));
  EXPECT_EQ(curl::kTcpKeepAlive, static_cast<int>(CURLOPT_TCP_KEEPALIVE));
  EXPECT_EQ(curl::kSuppressConnectHeaders, static_cast<int>(CURLOPT_SUPPRESS_CONNECT_HEADERS));
  EXPECT_EQ(curl::kWriteData, static_cast<int>(CURLOPT_WRITEDATA));
  EXPECT_EQ(curl::kUrl, static_cast<int>(CURLOPT_URL));
  EXPECT_EQ(curl::kErrorBuffer, static_cast<int>(CURLOPT_ERRORBUFFER));
  EXPECT_EQ(curl::kPostFields, static_cast<int>(CURLOPT_POSTFIELDS));
  EXPECT_EQ(curl::kUserAgent, static_cast<int>(CURLOPT_USERAGENT));
  EXPECT_EQ(curl::kHttpHeader, static_cast<int>(CURLOPT_HTTPHEADER));
  EXPECT_EQ(curl::kSslCert, static_cast<int>(CURLOPT_SSLCERT));
  EXPECT_EQ(curl::kHeaderData, static_cast<int>(CURLOPT_HEADERDATA));
  EXPECT_EQ(curl::kProgressData, static_cast<int>(CURLOPT_XFERINFODATA));
  EXPECT_EQ(curl::kCaInfo, static_cast<int>(CURLOPT_CAINFO));
  EXPECT_EQ(curl::kSslKey, static_cast<int>(CURLOPT_SSLKEY));
  EXPECT_EQ(curl::kWriteFunction, static_cast<int>(CURLOPT_WRITEFUNCTION));
  EXPECT_EQ(curl::kHeaderFunction, static_cast<int>(CURLOPT_HEADERFUNCTION));
  EXPECT_EQ(curl::kProgressFunction, static_cast<int>(CURLOPT_XFERINFOFUNCTION));
  EXPECT_EQ(curl::kPostFieldSize, static_cast<int>(CURLOPT_POSTFIELDSIZE_LARGE));
  EXPECT_EQ(curl::kResponseCode, static_cast<int>(CURLINFO_RESPONSE_CODE));
  EXPECT_EQ(curl::kRetryAfter, static_cast<int>(CURLINFO_RETRY_AFTER));
  EXPECT_EQ(curl::kOk, static_cast<int>(CURLE_OK));
  EXPECT_EQ(curl::kHttp, CURLPROTO_HTTP);
  EXPECT_EQ(curl::kHttps, CURLPROTO_HTTPS);
  EXPECT_EQ(curl::kGlobalDefault, CURL_GLOBAL_DEFAULT);
  EXPECT_EQ(curl::kErrorSize, static_cast<unsigned>(CURL_ERROR_SIZE));
#else
  GTEST_SKIP() << "curl/curl.h is not installed (Debian: libcurl4-openssl-dev)";
#endif
}

}  // namespace
}  // namespace nanwatch
