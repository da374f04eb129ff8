// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "daemon/base/command_line.h"
#include "daemon/base/small_file.h"

namespace nanwatch {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;

std::string At(const std::string& path, const toml::source_position& place) {
  return fmt::format("{}:{}:{}", path, place.line, place.column);
}

// Makes the values of one file's table, one after the other.
class Reader {
 public:
  Reader(std::string path, std::string home)
      : path_(std::move(path)),
        home_(std::move(home)),
        directory_(std::filesystem::path(path_).parent_path().string()) {}

  Status Read(const toml::table& table, const std::string& prefix) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      const toml::table* const inner = node.as_table();
      const Status read =
          inner != nullptr && IsSection(key) ? Read(*inner, key + ".") : Take(key, name, node);
      if (!read.ok()) return read;
    }
    return Status();
  }

  std::vector<ConfiguredValue> Values() {
    std::sort(values_.begin(), values_.end(),
              [](const auto& a, const auto& b) { return a.line < b.line; });
    return std::move(values_);
  }

 private:
  static bool IsSection(const std::string& key) {
    return std::any_of(Settings().begin(), Settings().end(),
                       [&](const Setting& s) { return s.section() == key; });
  }

  [[nodiscard]] Status Wrong(const toml::source_position& place, const std::string& what) const {
    return {ErrorKind::kInvalid, At(path_, place) + ": " + what};
  }

  Status Take(const std::string& key, const toml::key& name, const toml::node& node) {
    const auto found = std::find_if(Settings().begin(), Settings().end(),
                                    [&](const Setting& s) { return s.key == key; });
    if (found == Settings().end()) return Wrong(name.source().begin, UnknownKey(key));
    const std::optional<std::string> value = Text(*found, node);
    if (!value.has_value()) {
      return Wrong(node.source().begin, fmt::format("{} takes {}", key, ExampleOf(found->kind)));
    }
    if (found->kind == SettingKind::kRules && MixesFileAndRules(*value)) {
      return Wrong(node.source().begin,
                   key + ": a file of rules ('@FILE') must be the only entry of the list");
    }
    values_.push_back({&*found, *value, path_, name.source().begin.line});
    return Status();
  }

  static bool MixesFileAndRules(const std::string& lines) {
    const bool has_file = lines.starts_with('@') || lines.find("\n@") != std::string::npos;
    return has_file && lines.find('\n') != std::string::npos;
  }

  static std::string UnknownKey(const std::string& key) {
    std::vector<std::string> known;
    for (const Setting& setting : Settings()) known.emplace_back(setting.key);
    std::string near = NearestWord(key, known);
    // The right name in the wrong section, or in none.
    const std::string last = key.substr(key.rfind('.') + 1);
    for (const std::string& candidate : known) {
      if (near.empty() && candidate.substr(candidate.rfind('.') + 1) == last) near = candidate;
    }
    return "there is no setting '" + key + "'" +
           (near.empty() ? "; 'nanwatch config' lists them" : "; did you mean '" + near + "'?");
  }

  // As the environment variable has it; nothing: it is of another type.
  [[nodiscard]] std::optional<std::string> Text(const Setting& setting,
                                                const toml::node& node) const {
    const toml::value<std::string>* const text = node.as_string();
    switch (setting.kind) {
      case SettingKind::kText:
        return text == nullptr ? std::nullopt : std::optional(text->get());
      case SettingKind::kPath:
        return text == nullptr ? std::nullopt : Path(text->get());
      case SettingKind::kLog:
        if (text != nullptr && text->get() == "stderr") return text->get();
        return text == nullptr ? std::nullopt : Path(text->get());
      case SettingKind::kNumber:
      case SettingKind::kSize:
        return text == nullptr ? Number(node) : std::optional(text->get());
      case SettingKind::kSwitch:
        if (const toml::value<bool>* const flag = node.as_boolean()) return flag->get() ? "1" : "0";
        return std::nullopt;
      case SettingKind::kRules:
        return List(node, "\n");
      case SettingKind::kNames:
        return List(node, ",");
    }
    return std::nullopt;
  }

  static std::optional<std::string> Number(const toml::node& node) {
    if (const toml::value<int64_t>* const whole = node.as_integer())
      return std::to_string(whole->get());
    if (const toml::value<double>* const real = node.as_floating_point())
      return fmt::format("{}", real->get());
    return std::nullopt;
  }

  [[nodiscard]] std::optional<std::string> Path(const std::string& typed) const {
    if (typed.empty()) return std::nullopt;
    if (typed[0] == '/') return typed;
    if (typed == "~" || typed.starts_with("~/")) return home_ + typed.substr(1);
    return (std::filesystem::path(directory_) / typed).lexically_normal().string();
  }

  [[nodiscard]] std::optional<std::string> List(const toml::node& node,
                                                std::string_view between) const {
    if (const toml::value<std::string>* const one = node.as_string()) return Entry(one->get());
    const toml::array* const several = node.as_array();
    if (several == nullptr) return std::nullopt;
    std::string joined;
    for (const toml::node& element : *several) {
      const toml::value<std::string>* const text = element.as_string();
      if (text == nullptr) return std::nullopt;
      const std::optional<std::string> entry = Entry(text->get());
      if (!entry.has_value()) return std::nullopt;
      if (!joined.empty()) joined += between;
      joined += *entry;
    }
    return joined;
  }

  [[nodiscard]] std::optional<std::string> Entry(const std::string& text) const {
    if (!text.starts_with('@')) return text;
    const std::optional<std::string> path = Path(text.substr(1));
    return path.has_value() ? std::optional("@" + *path) : std::nullopt;
  }

  std::string path_;
  std::string home_;
  std::string directory_;
  std::vector<ConfiguredValue> values_;
};

}  // namespace

Result<std::vector<ConfiguredValue>> ReadConfigFile(const std::string& path,
                                                    const std::string& home) {
  const Result<std::string> text = ReadSmallFile(path, kFileBytesMax);
  if (!text.ok())
    return text.status().WithContext("cannot read the configuration file '" + path + "'");
  if (text->size() > kFileBytesMax)
    return Status(ErrorKind::kInvalid,
                  "the configuration file '" + path + "' is larger than 1 MiB");
  try {
    Reader reader(path, home);
    const toml::table table = toml::parse(*text, path);
    if (Status read = reader.Read(table, ""); !read.ok()) return read;
    return reader.Values();
  } catch (const toml::parse_error& error) {
    return Status(ErrorKind::kInvalid, At(path, error.source().begin) + ": this is not TOML: " +
                                           std::string(error.description()));
  }
}

}  // namespace nanwatch
