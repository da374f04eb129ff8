// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_client.h"

#include <dlfcn.h>

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#undef curl_easy_setopt
#undef curl_easy_getinfo

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/http/listen_address.h"

namespace nanwatch {
namespace {

constexpr long kConnectSeconds = 10;
constexpr size_t kReplyBytesMax = size_t{64} << 20;
constexpr char kLibrary[] = "libcurl.so.4";

struct Curl {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
};

template <typename Function>
bool Load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Stays loaded: libcurl cannot be unloaded safely.
Result<Curl> LoadCurl() {
  Curl curl;
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Status(ErrorKind::kNotFound, std::string(kLibrary) +
                                            " is needed to send anything: install it (Debian: "
                                            "apt-get install libcurl4)");
  const bool whole = Load(library, "curl_global_init", curl.global_init) &&
                     Load(library, "curl_easy_init", curl.easy_init) &&
                     Load(library, "curl_easy_reset", curl.easy_reset) &&
                     Load(library, "curl_easy_setopt", curl.easy_setopt) &&
                     Load(library, "curl_easy_perform", curl.easy_perform) &&
                     Load(library, "curl_easy_getinfo", curl.easy_getinfo) &&
                     Load(library, "curl_easy_strerror", curl.easy_strerror) &&
                     Load(library, "curl_easy_cleanup", curl.easy_cleanup) &&
                     Load(library, "curl_slist_append", curl.slist_append) &&
                     Load(library, "curl_slist_free_all", curl.slist_free_all);
  if (!whole || curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    return Status(ErrorKind::kUnsupported, std::string(kLibrary) + " cannot be used");
  return curl;
}

size_t TakeBytes(char* bytes, size_t size, size_t count, void* reply) {
  std::string& body = static_cast<HttpReply*>(reply)->body;
  if (size * count > kReplyBytesMax - std::min(body.size(), kReplyBytesMax)) return 0;
  body.append(bytes, size * count);
  return size * count;
}

class CurlClient final : public HttpClient {
 public:
  CurlClient(const Curl& curl, HttpClientOptions options)
      : curl_(curl), options_(std::move(options)), handle_(curl_.easy_init()) {}
  CurlClient(const CurlClient&) = delete;
  CurlClient& operator=(const CurlClient&) = delete;
  ~CurlClient() override {
    if (handle_ != nullptr) curl_.easy_cleanup(handle_);
  }

  Status ReadTokenFile() {
    if (options_.token_file.empty()) return Status();
    Result<std::string> token = ReadToken(options_.token_file);
    if (!token.ok()) return token.status();
    token_ = *std::move(token);
    return Status();
  }

  Result<HttpReply> Get(const std::string& path, const std::string& accept) override {
    return Ask(path, {"Accept: " + accept}, nullptr);
  }
  // Without Expect the body goes with the head: the token is refused rarely, and costs a body then.
  Result<HttpReply> Post(const std::string& path, const std::string& type,
                         const std::string& body) override {
    return Ask(path, {"Content-Type: " + type, "Content-Encoding: gzip", "Expect:"}, &body);
  }

 private:
  // A token may have been replaced while we ran.
  Result<HttpReply> Ask(const std::string& path, const std::vector<std::string>& headers,
                        const std::string* body) {
    Result<HttpReply> reply = AskOnce(path, headers, body);
    const std::string before = token_;
    if (!reply.ok() || reply->status != 401 || !ReadTokenFile().ok() || token_ == before)
      return reply;
    return AskOnce(path, headers, body);
  }

  Result<HttpReply> AskOnce(const std::string& path, const std::vector<std::string>& headers,
                            const std::string* body) {
    if (handle_ == nullptr) return Status(ErrorKind::kIo, "libcurl has no memory");
    HttpReply reply;
    char why[CURL_ERROR_SIZE] = "";
    curl_slist* lines = nullptr;
    for (const std::string& header : headers) lines = curl_.slist_append(lines, header.c_str());
    if (!token_.empty())
      lines = curl_.slist_append(lines, ("Authorization: Bearer " + token_).c_str());
    SetOptions(options_.url + path, lines, why, reply);
    if (body != nullptr) {
      curl_.easy_setopt(handle_, CURLOPT_POST, 1L);
      curl_.easy_setopt(handle_, CURLOPT_POSTFIELDS, body->data());
      curl_.easy_setopt(handle_, CURLOPT_POSTFIELDSIZE_LARGE,
                        static_cast<curl_off_t>(body->size()));
    }
    const CURLcode done = curl_.easy_perform(handle_);
    curl_.slist_free_all(lines);
    if (done != CURLE_OK)
      return Status(ErrorKind::kIo,
                    options_.url + ": " + (why[0] != '\0' ? why : curl_.easy_strerror(done)));
    long status = 0;
    curl_off_t retry_after = 0;
    curl_.easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
    curl_.easy_getinfo(handle_, CURLINFO_RETRY_AFTER, &retry_after);
    reply.status = static_cast<int>(status);
    reply.retry_after_s = static_cast<int>(std::clamp<curl_off_t>(retry_after, 0, 3600));
    return reply;
  }

  // A reset keeps the connection.
  void SetOptions(const std::string& url, curl_slist* lines, char* why, HttpReply& reply) {
    curl_.easy_reset(handle_);
    curl_.easy_setopt(handle_, CURLOPT_URL, url.c_str());
    curl_.easy_setopt(handle_, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_.easy_setopt(handle_, CURLOPT_HTTPHEADER, lines);
    curl_.easy_setopt(handle_, CURLOPT_USERAGENT, "nanwatch");
    curl_.easy_setopt(handle_, CURLOPT_NOSIGNAL, 1L);
    curl_.easy_setopt(handle_, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    curl_.easy_setopt(handle_, CURLOPT_TIMEOUT, static_cast<long>(options_.timeout_s));
    curl_.easy_setopt(handle_, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_.easy_setopt(handle_, CURLOPT_ERRORBUFFER, why);
    curl_.easy_setopt(handle_, CURLOPT_WRITEFUNCTION, &TakeBytes);
    curl_.easy_setopt(handle_, CURLOPT_WRITEDATA, &reply);
    for (const auto& [option, file] : {std::pair(CURLOPT_CAINFO, &options_.ca_file),
                                       std::pair(CURLOPT_SSLCERT, &options_.certificate_file),
                                       std::pair(CURLOPT_SSLKEY, &options_.key_file)}) {
      if (!file->empty()) curl_.easy_setopt(handle_, option, file->c_str());
    }
  }

  Curl curl_;
  HttpClientOptions options_;
  CURL* handle_;
  std::string token_;
};

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::Make(const HttpClientOptions& options) {
  HttpClientOptions asked = options;
  while (asked.url.ends_with('/')) asked.url.pop_back();
  if (!asked.url.starts_with("http://") && !asked.url.starts_with("https://"))
    return Status(ErrorKind::kInvalid, "'" + options.url +
                                           "' is no address: give one such as "
                                           "https://gather.example.org:4318");
  const Result<Curl> curl = LoadCurl();
  if (!curl.ok()) return curl.status();
  auto client = std::make_unique<CurlClient>(*curl, std::move(asked));
  if (Status read = client->ReadTokenFile(); !read.ok()) return read;
  return std::unique_ptr<HttpClient>(std::move(client));
}

}  // namespace nanwatch
