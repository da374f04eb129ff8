// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/listen_address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "daemon/base/unique_fd.h"

namespace nanwatch {
namespace {

constexpr size_t kTokenMin = 16;
constexpr size_t kTokenMax = 4096;

}  // namespace

std::optional<ListenAddress> ParseListen(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  ListenAddress listen;
  listen.address = text.substr(0, colon);
  if (listen.address.starts_with('[') && listen.address.ends_with(']'))
    listen.address = listen.address.substr(1, listen.address.size() - 2);
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, listen.port);
  if (error != std::errc() || rest != end || listen.port < 0 || listen.port > 65535)
    return std::nullopt;
  if (listen.address == "localhost") listen.address = "127.0.0.1";
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET, listen.address.c_str(), &four) == 1) {
    listen.is_loopback = (ntohl(four.s_addr) >> 24) == 127;
  } else if (inet_pton(AF_INET6, listen.address.c_str(), &six) == 1) {
    listen.is_loopback = IN6_IS_ADDR_LOOPBACK(&six);
  } else {
    return std::nullopt;
  }
  return listen;
}

Result<std::string> ReadSecret(const std::string& path, size_t bytes_max) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd.valid() || fstat(fd.get(), &status) != 0)
    return Status::FromErrno(errno, "the token file '" + path + "' cannot be read");
  // A secret of Kubernetes belongs to root, and is given to us by its group.
  const mode_t others = status.st_uid == geteuid() ? 077 : 027;
  if (!S_ISREG(status.st_mode))
    return Status(ErrorKind::kInvalid,
                  "the token file '" + path + "' is no file: name one that holds the token");
  if ((status.st_mode & others) != 0) {
    return Status(ErrorKind::kPermission,
                  "others may read the token file: run 'chmod 600 " + path + "'");
  }
  std::string text(bytes_max + 1, '\0');
  const ssize_t got = read(fd.get(), text.data(), text.size());
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  if (text.size() > bytes_max)
    return Status(ErrorKind::kInvalid, "the token file '" + path + "' is too long");
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text;
}

bool IsToken(const std::string& text) {
  return text.size() >= kTokenMin && text.size() <= kTokenMax &&
         text.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=") ==
             std::string::npos;
}

Result<std::string> ReadToken(const std::string& path) {
  Result<std::string> token = ReadSecret(path, kTokenMax + 2);
  if (token.ok() && !IsToken(*token)) {
    return Status(ErrorKind::kInvalid,
                  "the token in '" + path +
                      "' must be one word of at least 16 letters and digits, for example that of "
                      "'openssl rand -hex 16'");
  }
  return token;
}

std::string WrongListen(const std::string& what, const std::string& text,
                        const std::string& example) {
  return what + " is '" + text + "': give an address and a port, for example " + example;
}

std::string UrlOf(const std::string& address, int port) {
  const bool is_six = address.find(':') != std::string::npos;
  return "http://" + (is_six ? "[" + address + "]" : address) + ":" + std::to_string(port) + "/";
}

}  // namespace nanwatch
