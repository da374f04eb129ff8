// SPDX-License-Identifier: Apache-2.0
// Who is answered: the name that a request gives this server, and the token that it carries. Pure
// functions; both texts may be anything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nanwatch {

// Whether `host`, a Host header, names this server: an address, localhost or one of `names`, with
// or without a port. A name that an attacker's DNS leads here is none of these.
[[nodiscard]] bool IsOwnHost(std::string_view host, const std::vector<std::string>& names);

// Whether an Authorization header carries the token: as Bearer, or as the password of Basic. Takes
// as long for a wrong one as for a right one of its length.
[[nodiscard]] bool HasToken(std::string_view authorization, std::string_view token);

}  // namespace nanwatch
