// SPDX-License-Identifier: Apache-2.0
#include "tools/installation.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace nanwatch {

std::string ResolveLinks(const std::string& path) {
  char* resolved = realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return "";
  std::string result = resolved;
  free(resolved);
  return result;
}

Installation LocateInstallation() {
  std::error_code error;
  const std::filesystem::path tool = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path bin = tool.parent_path();
  const std::filesystem::path lib = bin.parent_path() / "lib";
  return {.tool = tool,
          .daemon = bin / "nanwatchd",
          .library = lib / kLibraryName,
          .observer_dir = lib / "nanwatch"};
}

std::vector<std::string> ObserverFiles(const Installation& installation) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(installation.observer_dir, error)) {
    if (entry.path().extension() == ".so") files.push_back(entry.path().filename());
  }
  // 2.9 before 2.10.
  std::sort(files.begin(), files.end(), [](const std::string& a, const std::string& b) {
    return strverscmp(a.c_str(), b.c_str()) < 0;
  });
  return files;
}

std::string PrefixOf(const Installation& installation) {
  return std::filesystem::path(installation.observer_dir).parent_path().parent_path();
}

std::string BuildObserverScript(const Installation& installation) {
  return PrefixOf(installation) + "/share/nanwatch/scripts/build-observer.sh";
}

std::string BuildObserverCommand(const Installation& installation, const std::string& python) {
  return installation.tool + " build-observer --python " + python;
}

}  // namespace nanwatch
