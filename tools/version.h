// SPDX-License-Identifier: Apache-2.0
// What `nanwatch --version` says.
#pragma once

namespace nanwatch {

int PrintVersion(bool json);

}  // namespace nanwatch
