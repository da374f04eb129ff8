// SPDX-License-Identifier: Apache-2.0
// Reads one configuration file (TOML, https://toml.io/en/v1.0.0).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/config/settings.h"

namespace nanwatch {

struct ConfiguredValue {
  const Setting* setting = nullptr;
  std::string value;  // as the environment variable would have it; paths are absolute
  std::string file;
  uint32_t line = 0;  // from 1
};

// The values of the file at `path` (absolute), in the file's order. `home` is what "~/" stands for.
// Nothing of a file with a mistake: the status names file, line and column and says what to write;
// for a key that does not exist, the nearest that does.
[[nodiscard]] Result<std::vector<ConfiguredValue>> ReadConfigFile(const std::string& path,
                                                                  const std::string& home);

}  // namespace nanwatch
