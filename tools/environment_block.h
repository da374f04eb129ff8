// SPDX-License-Identifier: Apache-2.0
// A process environment as a value: what a child will be started with.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nanwatch {

class EnvironmentBlock {
 public:
  EnvironmentBlock() = default;
  explicit EnvironmentBlock(std::vector<std::string> assignments)
      : assignments_(std::move(assignments)) {}
  [[nodiscard]] static EnvironmentBlock OfThisProcess();

  // The value of `name`; nothing when it is not set.
  [[nodiscard]] std::optional<std::string> Get(std::string_view name) const;
  // The same, "" when it is not set.
  [[nodiscard]] std::string Text(std::string_view name) const { return Get(name).value_or(""); }
  void Set(std::string_view name, std::string_view value);
  void Unset(std::string_view name);

  // "NAME=value" each, in the order they came.
  [[nodiscard]] const std::vector<std::string>& Assignments() const { return assignments_; }

 private:
  std::vector<std::string> assignments_;
};

}  // namespace nanwatch
