// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/configuration.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
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

std::string_view KeyOf(std::string_view variable) {
  for (const Setting& setting : Settings()) {
    if (setting.variable == variable) return setting.key;
  }
  return "";
}

// A token is for one address: such a section is that of the nearest file that has its address.
struct AddressedSection {
  std::string_view name;
  const char* address;  // the variable
};
constexpr std::array kAddressed = {AddressedSection{"forward", kEnvForwardTo},
                                   AddressedSection{"fleet", kEnvFleet}};

const AddressedSection* FindAddressed(std::string_view section) {
  const auto* const found =
      std::find_if(kAddressed.begin(), kAddressed.end(),
                   [&](const AddressedSection& one) { return one.name == section; });
  return found == kAddressed.end() ? nullptr : &*found;
}

// The file whose section is taken whole; "": none has an address, or the section needs none.
std::string FileOfSection(const std::vector<FileValues>& files, std::string_view section) {
  const AddressedSection* const addressed = FindAddressed(section);
  if (addressed == nullptr) return "";
  const auto found = std::find_if(files.begin(), files.end(), [&](const FileValues& file) {
    return Sets(file, addressed->address);
  });
  return found == files.end() ? "" : found->path;
}

// Of the nearest file that has a value.
void Merge(std::vector<FileValues> files, Configuration& configuration) {
  std::map<std::string_view, std::string> owners;
  for (const AddressedSection& one : kAddressed) owners[one.name] = FileOfSection(files, one.name);
  for (FileValues& file : files) {
    configuration.files.push_back(file.path);
    for (ConfiguredValue& value : file.values) {
      const std::string& owner = owners[value.setting->section()];
      if (!owner.empty() && file.path != owner) {
        const std::string_view address = FindAddressed(value.setting->section())->address;
        if (value.setting->variable == address) continue;
        configuration.notes.push_back(fmt::format(
            "{} in {}:{} is not used: {} is that of {}, and what goes with it has to stand "
            "there, too",
            value.setting->key, value.file, value.line, KeyOf(address), owner));
      } else if (configuration.Find(value.setting->variable) == nullptr) {
        configuration.values.push_back(std::move(value));
      }
    }
  }
}

// The environment names another address than the files.
bool GoesElsewhere(const Configuration& configuration, std::string_view section) {
  const AddressedSection* const addressed = FindAddressed(section);
  if (addressed == nullptr) return false;
  const std::string address = ProcessEnvironment()(addressed->address);
  const ConfiguredValue* const configured = configuration.Find(addressed->address);
  return !address.empty() && configured != nullptr && configured->value != address;
}

// Whether a section holds for a verb: that of its name, and [fleet] for all that may ask one.
bool HoldsFor(std::string_view held, std::string_view asked) {
  constexpr std::array kAsking = {std::string_view("ps"), std::string_view("top"),
                                  std::string_view("tail"), std::string_view("report"),
                                  std::string_view("serve")};
  if (held.empty() || held == asked) return true;
  return held == "fleet" && std::find(kAsking.begin(), kAsking.end(), asked) != kAsking.end();
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
  std::set<std::string_view> elsewhere;  // sections whose address is another: a token is for one
  for (const AddressedSection& one : kAddressed) {
    if (GoesElsewhere(configuration, one.name)) elsewhere.insert(one.name);
  }
  for (const ConfiguredValue& value : configuration.values) {
    const std::string_view its_section = value.setting->section();
    if (!HoldsFor(its_section, section) || elsewhere.contains(its_section)) continue;
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
