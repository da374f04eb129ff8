// SPDX-License-Identifier: Apache-2.0
// The shape of help texts. CLI11's own layout breaks our examples and invents usage lines.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <string>

namespace nanwatch {

class HelpLayout final : public CLI::Formatter {
 public:
  // `usage` is the text after "Usage: ".
  explicit HelpLayout(std::string usage) : usage_(std::move(usage)) { column_width(26); }

  std::string make_usage(const CLI::App*, std::string) const override {
    return "\nUsage: " + usage_ + "\n";
  }
  std::string make_footer(const CLI::App* app) const override {
    const std::string footer = app->get_footer();
    return footer.empty() ? "" : footer + "\n";
  }
  // Without the type and the needs that CLI11 would append.
  std::string make_option_opts(const CLI::Option* option) const override {
    // CLI11 appends ":INT in [0 - 9]" where a value is checked.
    const std::string type = option->get_type_name();
    return option->get_type_size() == 0 ? "" : " " + type.substr(0, type.find(':'));
  }

 private:
  std::string usage_;
};

inline void SetHelp(CLI::App& verb, const std::string& usage, const std::string& footer) {
  verb.formatter(std::make_shared<HelpLayout>(usage));
  verb.footer(footer);
}

}  // namespace nanwatch
