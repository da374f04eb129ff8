// SPDX-License-Identifier: Apache-2.0
#include "tools/version.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "proto/wire/segment.h"
#include "tools/exit_codes.h"
#include "tools/installation.h"
#include "tools/python_probe.h"
#include "tools/terminal.h"

namespace nanwatch {

int PrintVersion(bool json) {
  const std::vector<std::string> minors = ObserverMinors(LocateInstallation());
  const std::string wire =
      std::to_string(wire::kWireMajor) + "." + std::to_string(wire::kWireMinor);
  if (json) {
    const nlohmann::ordered_json document = {{"schema", "nanwatch.version/1"},
                                             {"version", NANWATCH_VERSION},
                                             {"wire", wire},
                                             {"observers", minors}};
    return PrintAndExit(document.dump(2) + "\n", kExitOk);
  }
  return PrintAndExit(
      fmt::format("nanwatch {}, segments {}, observers for torch {}\n", NANWATCH_VERSION, wire,
                  minors.empty() ? "none" : fmt::format("{}", fmt::join(minors, ", "))),
      kExitOk);
}

}  // namespace nanwatch
