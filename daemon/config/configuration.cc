// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/configuration.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace nanwatch {
namespace {

constexpr char kName[] = "nanwatch.toml";

// "" when there is none.
std::string NearestAbove(const std::string& working_directory) {
  std::error_code error;
  std::filesystem::path directory(working_directory);
  while (!directory.empty()) {
    const std::filesystem::path file = directory / kName;
    if (std::filesystem::exists(file, error)) return file.string();
    if (directory == directory.parent_path()) break;
    directory = directory.parent_path();
  }
  return "";
}

// Why a file that lies around is not to be followed, or "".
std::string Distrust(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return "";  // reading it says why
  if (info.st_uid != geteuid() && info.st_uid != 0)
    return fmt::format("it belongs to another user (uid {})", info.st_uid);
  if ((info.st_mode & S_IWOTH) != 0) return "everybody may write to it";
  return "";
}

std::string UserFile(const Environment& environment) {
  const std::string configured = environment("XDG_CONFIG_HOME");
  if (configured.starts_with('/')) return configured + "/nanwatch/" + kName;
  const std::string home = environment("HOME");
  return home.starts_with('/') ? home + "/.config/nanwatch/" + kName : "";
}

struct FileValues {
  std::string path;
  std::vector<ConfiguredValue> values;
};

Status AddFile(const std::string& path, const Environment& environment,
               std::vector<FileValues>& files) {
  Result<std::vector<ConfiguredValue>> values = ReadConfigFile(path, environment("HOME"));
  if (!values.ok()) return values.status();
  files.push_back({path, *std::move(values)});
  return Status();
}

bool Sets(const FileValues& file, std::string_view variable) {
  return std::any_of(file.values.begin(), file.values.end(), [&](const ConfiguredValue& value) {
    return value.setting->variable == variable;
  });
}

// Of the nearest file that has a value. But a token is for one address: the section [forward] is
// that of the nearest file that says where to.
void Merge(std::vector<FileValues> files, Configuration& configuration) {
  const auto addressed = std::find_if(
      files.begin(), files.end(), [](const FileValues& file) { return Sets(file, kEnvForwardTo); });
  const std::string forward_file = addressed == files.end() ? "" : addressed->path;
  for (FileValues& file : files) {
    configuration.files.push_back(file.path);
    for (ConfiguredValue& value : file.values) {
      if (value.setting->section() == "forward" && !forward_file.empty() &&
          file.path != forward_file) {
        if (value.setting->variable == std::string_view(kEnvForwardTo)) continue;
        configuration.notes.push_back(fmt::format(
            "{} in {}:{} is not used: forward.to is that of {}, and what goes with it has to stand "
            "there, too",
            value.setting->key, value.file, value.line, forward_file));
      } else if (configuration.Find(value.setting->variable) == nullptr) {
        configuration.values.push_back(std::move(value));
      }
    }
  }
}

}  // namespace

const ConfiguredValue* Configuration::Find(std::string_view variable) const {
  const auto found = std::find_if(values.begin(), values.end(), [&](const ConfiguredValue& value) {
    return value.setting->variable == variable;
  });
  return found == values.end() ? nullptr : &*found;
}

Result<Configuration> ReadConfiguration(const Environment& environment,
                                        const std::string& working_directory,
                                        const std::string& system_file) {
  Configuration configuration;
  std::vector<FileValues> files;
  if (const std::string chosen = environment(kEnvConfig); !chosen.empty()) {
    const std::string path = (std::filesystem::path(working_directory) / chosen).string();
    if (Status read = AddFile(path, environment, files); !read.ok())
      return read.WithContext(kEnvConfig);
    Merge(std::move(files), configuration);
    return configuration;
  }
  std::string near = NearestAbove(working_directory);
  if (const std::string why = near.empty() ? "" : Distrust(near); !why.empty()) {
    configuration.notes.push_back("the configuration file " + near + " is not read: " + why +
                                  "; name it in " + kEnvConfig + " to use it");
    near.clear();
  }
  for (const std::string& path : {near, UserFile(environment), system_file}) {
    const bool known = std::any_of(files.begin(), files.end(),
                                   [&](const FileValues& file) { return file.path == path; });
    if (path.empty() || known || access(path.c_str(), F_OK) != 0) continue;
    if (Status read = AddFile(path, environment, files); !read.ok()) return read;
  }
  Merge(std::move(files), configuration);
  return configuration;
}

Result<Configuration> ReadConfiguration() {
  std::error_code error;
  return ReadConfiguration(ProcessEnvironment(), std::filesystem::current_path(error).string());
}

void ApplyConfiguration(const Configuration& configuration, std::string_view section) {
  const std::string to = ProcessEnvironment()(kEnvForwardTo);
  const ConfiguredValue* const configured = configuration.Find(kEnvForwardTo);
  const bool goes_elsewhere = !to.empty() && configured != nullptr && configured->value != to;
  for (const ConfiguredValue& value : configuration.values) {
    const std::string_view its = value.setting->section();
    if (!its.empty() && its != section) continue;
    // A token is for one address.
    if (its == "forward" && goes_elsewhere) continue;
    if (ProcessEnvironment()(value.setting->variable).empty())
      setenv(value.setting->variable, value.value.c_str(), 1);
  }
}

std::string NameOfSetting(const Configuration& configuration, const char* variable) {
  const ConfiguredValue* const value = configuration.Find(variable);
  if (value == nullptr || ProcessEnvironment()(variable) != value->value) return variable;
  return fmt::format("{} ({}:{})", value->setting->key, value->file, value->line);
}

}  // namespace nanwatch
