// SPDX-License-Identifier: Apache-2.0
// Who shares a gatherer and sees nothing of each other: a file with a line a tenant, its name and
// its token. A tenant may have several lines, so that a token can be replaced while both are used.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/http/http_server.h"

namespace nanwatch {

// Empty lines and those that begin with # are passed over. kPermission where others may read it.
[[nodiscard]] Result<std::vector<HttpToken>> ReadTenants(const std::string& path);

}  // namespace nanwatch
