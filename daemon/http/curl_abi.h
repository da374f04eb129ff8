// SPDX-License-Identifier: Apache-2.0
// The part of libcurl's binary interface that http_client.cc uses, so that a build needs none of
// libcurl's headers. The numbers are those of libcurl 7.74 (Debian 11), and libcurl.so.4 never
// changes them. Where <curl/curl.h> is installed, curl_abi_test.cc compares them with it.
#pragma once

namespace nanwatch::curl {

// Of CURLoption; the comment names the type of the value.
enum Option : int {
  kTimeout = 13,                  // long, seconds
  kNoProgress = 43,               // long
  kPost = 47,                     // long
  kConnectTimeout = 78,           // long, seconds
  kNoSignal = 99,                 // long
  kProtocols = 181,               // long, of kHttp and kHttps
  kTcpKeepAlive = 213,            // long
  kSuppressConnectHeaders = 265,  // long
  kWriteData = 10001,             // void*
  kUrl = 10002,                   // const char*
  kErrorBuffer = 10010,           // char*, of kErrorSize
  kPostFields = 10015,            // const char*
  kUserAgent = 10018,             // const char*
  kHttpHeader = 10023,            // curl_slist*
  kSslCert = 10025,               // const char*
  kHeaderData = 10029,            // void*
  kProgressData = 10057,          // void*
  kCaInfo = 10065,                // const char*
  kSslKey = 10087,                // const char*
  kWriteFunction = 20011,         // size_t (*)(char*, size_t, size_t, void*)
  kHeaderFunction = 20079,        // likewise
  kProgressFunction = 20219,      // int (*)(void*, int64_t, int64_t, int64_t, int64_t)
  kPostFieldSize = 30120,         // int64_t
};

// Of CURLINFO.
enum Info : int {
  kResponseCode = 0x200002,  // long
  kRetryAfter = 0x600039,    // int64_t, seconds
};

inline constexpr int kOk = 0;  // of CURLcode
inline constexpr long kHttp = 1;
inline constexpr long kHttps = 2;
inline constexpr long kGlobalDefault = 3;
inline constexpr unsigned kErrorSize = 256;

}  // namespace nanwatch::curl
