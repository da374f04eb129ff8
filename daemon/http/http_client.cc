// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_client.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/http/curl_abi.h"
#include "daemon/http/listen_address.h"
#include "daemon/http/request_name.h"

struct curl_slist;

namespace nanwatch {
namespace {

constexpr long kConnectSeconds = 10;
constexpr size_t kReplyBytesMax = size_t{64} << 20;
constexpr size_t kHeaderBytesMax = size_t{16} << 10;  // of all that are kept
constexpr char kLibrary[] = "libcurl.so.4";

struct Curl {
  int (*global_init)(long) = nullptr;
  void* (*easy_init)() = nullptr;
  void (*easy_reset)(void*) = nullptr;
  int (*easy_setopt)(void*, int, ...) = nullptr;
  int (*easy_perform)(void*) = nullptr;
  int (*easy_getinfo)(void*, int, ...) = nullptr;
  const char* (*easy_strerror)(int) = nullptr;
  void (*easy_cleanup)(void*) = nullptr;
  curl_slist* (*slist_append)(curl_slist*, const char*) = nullptr;
  void (*slist_free_all)(curl_slist*) = nullptr;
};

template <typename Function>
bool Load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// What the dynamic linker says of its last failure.
std::string WhyNotLoaded() {
  const char* const why = dlerror();
  return why == nullptr ? "no reason is known" : why;
}

// Stays loaded: libcurl cannot be unloaded safely.
Result<Curl> LoadCurl() {
  Curl curl;
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Status(ErrorKind::kNotFound,
                  std::string(kLibrary) + " is needed to send anything and cannot be loaded (" +
                      WhyNotLoaded() +
                      "): install libcurl (Debian: apt-get install libcurl4; Fedora: dnf install "
                      "libcurl). Programs of a package are static and can only load libraries of "
                      "the glibc they were built with: where it is installed, use nanwatch built "
                      "on this host");
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
  if (!whole || curl.global_init(curl::kGlobalDefault) != curl::kOk)
    return Status(ErrorKind::kUnsupported,
                  std::string(kLibrary) + " cannot be used: install 7.74 or newer");
  return curl;
}

// ---- what libcurl calls

size_t TakeBytes(char* bytes, size_t size, size_t count, void* reply) {
  std::string& body = static_cast<HttpReply*>(reply)->body;
  if (size * count > kReplyBytesMax - std::min(body.size(), kReplyBytesMax)) return 0;
  body.append(bytes, size * count);
  return size * count;
}

// A line of a head. Of several heads (100, then 200) the last counts.
size_t TakeHeader(char* bytes, size_t size, size_t count, void* reply) {
  std::map<std::string, std::string>& headers = static_cast<HttpReply*>(reply)->headers;
  const std::string_view line(bytes, size * count);
  if (line.starts_with("HTTP/")) headers.clear();
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return line.size();
  size_t kept = line.size();
  for (const auto& [name, value] : headers) kept += name.size() + value.size();
  if (kept > kHeaderBytesMax) return line.size();
  std::string name(line.substr(0, colon));
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
  while (!value.empty() && std::string_view("\r\n \t").find(value.back()) != std::string_view::npos)
    value.remove_suffix(1);
  headers[name] = std::string(value);
  return line.size();
}

int IsCancelled(void* options, int64_t, int64_t, int64_t, int64_t) {
  return static_cast<const HttpClientOptions*>(options)->is_cancelled() ? 1 : 0;
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
  Result<HttpReply> PostPlain(const std::string& path, const std::string& type,
                              const std::string& body) override {
    return Ask(path, {"Content-Type: " + type, "Expect:"}, &body);
  }
  Result<HttpReply> Post(const std::string& path, const std::string& type, const std::string& body,
                         const HttpHeaders& headers) override {
    std::vector<std::string> lines = {"Content-Type: " + type, "Content-Encoding: gzip", "Expect:"};
    for (const auto& [name, value] : headers) lines.emplace_back(name).append(": ").append(value);
    return Ask(path, lines, &body);
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
    char why[curl::kErrorSize] = "";
    curl_slist* lines = nullptr;
    for (const std::string& header : headers) lines = curl_.slist_append(lines, header.c_str());
    const std::string name = std::to_string(nonce_) + "-" + std::to_string(++requests_);
    lines = curl_.slist_append(lines, (std::string(kRequestNameHeader) + ": " + name).c_str());
    if (!token_.empty())
      lines = curl_.slist_append(lines, ("Authorization: Bearer " + token_).c_str());
    SetOptions(options_.url + path, lines, why, reply);
    if (body != nullptr) {
      Set(curl::kPost, 1L);
      Set(curl::kPostFields, body->data());
      Set(curl::kPostFieldSize, static_cast<int64_t>(body->size()));
    }
    const int done = curl_.easy_perform(handle_);
    curl_.slist_free_all(lines);
    if (done != curl::kOk)
      return Status(ErrorKind::kIo,
                    options_.url + ": " + (why[0] != '\0' ? why : curl_.easy_strerror(done)));
    const auto answered = reply.headers.find(kRequestNameHeader);
    if (answered != reply.headers.end() && answered->second != name) {
      // Others may wait behind it.
      curl_.easy_cleanup(handle_);
      handle_ = curl_.easy_init();
      return Status(ErrorKind::kIo, options_.url + ": the answer is to another request");
    }
    long status = 0;
    int64_t retry_after = 0;
    curl_.easy_getinfo(handle_, curl::kResponseCode, &status);
    curl_.easy_getinfo(handle_, curl::kRetryAfter, &retry_after);
    reply.status = static_cast<int>(status);
    reply.retry_after_s = static_cast<int>(std::clamp<int64_t>(retry_after, 0, 3600));
    return reply;
  }

  template <typename Value>
  void Set(curl::Option option, Value value) {
    curl_.easy_setopt(handle_, option, value);
  }

  // A reset keeps the connection.
  void SetOptions(const std::string& url, curl_slist* lines, char* why, HttpReply& reply) {
    curl_.easy_reset(handle_);
    Set(curl::kUrl, url.c_str());
    Set(curl::kProtocols, curl::kHttp | curl::kHttps);
    Set(curl::kHttpHeader, lines);
    Set(curl::kUserAgent, "nanwatch");
    Set(curl::kNoSignal, 1L);
    Set(curl::kConnectTimeout, kConnectSeconds);
    Set(curl::kTimeout, static_cast<long>(options_.timeout_s));
    Set(curl::kTcpKeepAlive, 1L);
    Set(curl::kErrorBuffer, why);
    Set(curl::kWriteFunction, &TakeBytes);
    Set(curl::kWriteData, &reply);
    Set(curl::kSuppressConnectHeaders, 1L);
    Set(curl::kHeaderFunction, &TakeHeader);
    Set(curl::kHeaderData, &reply);
    if (options_.is_cancelled) {
      Set(curl::kNoProgress, 0L);
      Set(curl::kProgressFunction, &IsCancelled);
      Set(curl::kProgressData, &options_);
    }
    for (const auto& [option, file] : {std::pair(curl::kCaInfo, &options_.ca_file),
                                       std::pair(curl::kSslCert, &options_.certificate_file),
                                       std::pair(curl::kSslKey, &options_.key_file)}) {
      if (!file->empty()) Set(option, file->c_str());
    }
  }

  Curl curl_;
  HttpClientOptions options_;
  void* handle_;
  std::string token_;
  // A name of each request that no other has, of whichever process.
  const uint64_t nonce_ = (uint64_t{std::random_device()()} << 32) | std::random_device()();
  uint64_t requests_ = 0;
};

}  // namespace

bool IsPlainToOthers(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return false;
  std::string host = url.substr(kScheme.size());
  host = host.substr(0, host.find('/'));
  const size_t end = host.starts_with('[') ? host.find(']') + 1 : host.find(':');
  const std::optional<ListenAddress> there = ParseListen(host.substr(0, end) + ":0");
  return !there.has_value() || !there->is_loopback;
}

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
