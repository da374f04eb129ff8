// SPDX-License-Identifier: Apache-2.0
// Where a database is, as libpq takes it: "host=db dbname=nanwatch", or a URI.
#pragma once

#include <string>

#include "daemon/base/status.h"

namespace nanwatch {

// The same connection with bounds on how long a server that is silent is waited for, where the user
// gave none: to connect 10 s a host, for an answer on the way 30 s. kInvalid: it is none.
[[nodiscard]] Result<std::string> WithTimeouts(const std::string& connection);

}  // namespace nanwatch
