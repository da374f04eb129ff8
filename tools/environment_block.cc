// SPDX-License-Identifier: Apache-2.0
#include "tools/environment_block.h"

#include <unistd.h>

#include <algorithm>

namespace nanwatch {
namespace {

bool Assigns(std::string_view assignment, std::string_view name) {
  return assignment.size() > name.size() && assignment.starts_with(name) &&
         assignment[name.size()] == '=';
}

}  // namespace

EnvironmentBlock EnvironmentBlock::OfThisProcess() {
  std::vector<std::string> assignments;
  for (char** entry = environ; *entry != nullptr; ++entry) assignments.emplace_back(*entry);
  return EnvironmentBlock(std::move(assignments));
}

std::optional<std::string> EnvironmentBlock::Get(std::string_view name) const {
  for (const std::string& assignment : assignments_) {
    if (Assigns(assignment, name)) return assignment.substr(name.size() + 1);
  }
  return std::nullopt;
}

void EnvironmentBlock::Set(std::string_view name, std::string_view value) {
  std::string wanted = std::string(name) + "=" + std::string(value);
  for (std::string& assignment : assignments_) {
    if (!Assigns(assignment, name)) continue;
    assignment = std::move(wanted);
    return;
  }
  assignments_.push_back(std::move(wanted));
}

void EnvironmentBlock::Unset(std::string_view name) {
  std::erase_if(assignments_, [&](const std::string& entry) { return Assigns(entry, name); });
}

}  // namespace nanwatch
