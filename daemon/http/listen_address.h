// SPDX-License-Identifier: Apache-2.0
// Where a program listens, as its --listen says, and the token that it or its clients share: a file
// of the user's own.
#pragma once

#include <optional>
#include <string>

#include "daemon/base/status.h"

namespace nanwatch {

struct ListenAddress {
  std::string address;  // IPv4 or IPv6, without brackets
  int port = 0;         // 0: any that is free
  bool is_loopback = false;
};

// "127.0.0.1:9464", "[::1]:0", "localhost:80"; nullopt: it is none of these.
[[nodiscard]] std::optional<ListenAddress> ParseListen(const std::string& text);

// What to say of a `text` that is none, which `what` gave: "--listen is 'x': give an address ...".
[[nodiscard]] std::string WrongListen(const std::string& what, const std::string& text,
                                      const std::string& example);

// "http://[::1]:9464/"
[[nodiscard]] std::string UrlOf(const std::string& address, int port);

// The text in the file, without line ends behind it. kPermission where others may read the file.
[[nodiscard]] Result<std::string> ReadSecret(const std::string& path, size_t bytes_max);
// Whether it is one word of at least 16 characters.
[[nodiscard]] bool IsToken(const std::string& text);

// The one word in the file, of at least 16 characters. kPermission where others may read the file.
[[nodiscard]] Result<std::string> ReadToken(const std::string& path);

}  // namespace nanwatch
