// SPDX-License-Identifier: Apache-2.0
// The shape of help texts. CLI11's own layout breaks our examples and invents usage lines.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <sstream>
#include <string>

namespace nanwatch {

inline constexpr size_t kHelpColumnsMax = 100;

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
  std::string make_option_desc(const CLI::Option* option) const override {
    return Wrapped(option->get_description());
  }
  std::string make_subcommand(const CLI::App* verb) const override {
    std::ostringstream line;
    CLI::detail::format_help(line, verb->get_display_name(true), Wrapped(verb->get_description()),
                             get_column_width());
    return line.str();
  }

 private:
  // Lines that end within kHelpColumnsMax; CLI11 indents each.
  std::string Wrapped(const std::string& text) const {
    std::istringstream words(text);
    std::string lines;
    size_t column = 0;
    for (std::string word; words >> word; column += word.size()) {
      const bool fits = column + 1 + word.size() <= kHelpColumnsMax - get_column_width();
      if (!lines.empty()) lines += fits ? ' ' : '\n';
      column = fits && !lines.empty() ? column + 1 : 0;
      lines += word;
    }
    return lines;
  }

  std::string usage_;
};

inline void SetHelp(CLI::App& verb, const std::string& usage, const std::string& footer) {
  verb.formatter(std::make_shared<HelpLayout>(usage));
  verb.footer(footer);
}

}  // namespace nanwatch
