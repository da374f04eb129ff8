#include "tools/version.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "proto/wire/segment.h"
#include "tools/exit_codes.h"
#include "tools/installation.h"
#include "tools/python_probe.h"
#include "tools/terminal.h"

namespace nanwatch {

int PrintVersion(bool json) {
  nlohmann::ordered_json minors = nlohmann::ordered_json::array();
  std::string list;
  for (const std::string& file : ObserverFiles(LocateInstallation())) {
    const std::string minor = ObserverMinor(file);
    if (minor.empty()) continue;
    minors.push_back(minor);
    list += (list.empty() ? "" : ", ") + minor;
  }
  const std::string wire =
      std::to_string(wire::kWireMajor) + "." + std::to_string(wire::kWireMinor);
  if (json) {
    const nlohmann::ordered_json document = {{"schema", "nanwatch.version/1"},
                                             {"version", NANWATCH_VERSION},
                                             {"wire", wire},
                                             {"observers", minors}};
    return PrintAndExit(document.dump(2) + "\n", kExitOk);
  }
  return PrintAndExit("nanwatch " NANWATCH_VERSION ", segments " + wire + ", observers for torch " +
                          (list.empty() ? "none" : list) + "\n",
                      kExitOk);
}

}  // namespace nanwatch
