// SPDX-License-Identifier: Apache-2.0
#include "tools/preload.h"

#include "tools/installation.h"

namespace nanwatch {
namespace {

bool NamesNanwatch(std::string_view entry) {
  const size_t slash = entry.rfind('/');
  const std::string_view file = slash == std::string_view::npos ? entry : entry.substr(slash + 1);
  return file == kLibraryName;
}

std::string Join(const std::vector<std::string>& entries) {
  std::string joined;
  for (const std::string& entry : entries) {
    if (!joined.empty()) joined += ':';
    joined += entry;
  }
  return joined;
}

}  // namespace

std::vector<std::string> PreloadEntries(std::string_view preload) {
  std::vector<std::string> entries;
  while (!preload.empty()) {
    const size_t end = preload.find_first_of(" :");
    const std::string_view entry = preload.substr(0, end);
    if (!entry.empty()) entries.emplace_back(entry);
    if (end == std::string_view::npos) break;
    preload.remove_prefix(end + 1);
  }
  return entries;
}

bool CanBePreloaded(std::string_view library) {
  return library.find_first_of(" :") == std::string_view::npos;
}

PreloadPlan ComposePreload(std::string_view current, const std::string& library,
                           const ResolvePath& resolve) {
  std::vector<std::string> entries = PreloadEntries(current);
  const std::string own = resolve(library);
  for (const std::string& entry : entries) {
    if (!NamesNanwatch(entry)) continue;
    const std::string there = resolve(entry);
    if (there.empty())
      continue;  // a stale path, which the loader ignores with a message of its own
    return {.value = std::string(current),
            .other_copy = there == own ? "" : there,
            .already_there = true};
  }
  entries.push_back(library);
  return {.value = Join(entries), .other_copy = "", .already_there = false};
}

std::string WithoutNanwatch(std::string_view current) {
  std::vector<std::string> kept;
  for (std::string& entry : PreloadEntries(current)) {
    if (!NamesNanwatch(entry)) kept.push_back(std::move(entry));
  }
  return Join(kept);
}

}  // namespace nanwatch
