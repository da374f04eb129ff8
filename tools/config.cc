// SPDX-License-Identifier: Apache-2.0
// The verb `config`: the settings that hold, and where each comes from.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/config/configuration.h"
#include "daemon/config/settings.h"
#include "daemon/http/listen_address.h"
#include "proto/wire/naming.h"
#include "tools/environment_block.h"
#include "tools/exit_codes.h"
#include "tools/help_layout.h"
#include "tools/job_launch.h"
#include "tools/places.h"
#include "tools/table.h"
#include "tools/terminal.h"
#include "tools/verb.h"

namespace nanwatch {
namespace {

constexpr char kConfigHelp[] =
    "Files, the nearest first; what a nearer one sets wins: nanwatch.toml in the working directory "
    "or the\n"
    "  nearest one above it, ~/.config/nanwatch/nanwatch.toml, /etc/nanwatch/nanwatch.toml; or "
    "$NANWATCH_CONFIG\n"
    "  alone. Environment variables win over files, and flags over both.\n"
    "\n"
    "Example of a file:\n"
    "  state_dir = \"/var/lib/nanwatch\"\n"
    "  [run]\n"
    "  level = \"sampled\"\n"
    "  ignore = [\"op=aten::log layer=encoder.mask*\"]\n"
    "\n"
    "Exit status: 0 printed, 2 a file or a variable has a mistake.\n"
    "Environment: NANWATCH_CONFIG, and the variables that the table names.";

struct HeldSetting {
  const Setting* setting = nullptr;
  std::string value;
  std::string source;  // "default", "environment" or "file"
  const ConfiguredValue* configured = nullptr;
};

std::string Otherwise(const Setting& setting, const Places& places) {
  if (setting.variable == std::string_view(wire::kEnvDir)) return places.segment_dir;
  if (setting.variable == std::string_view(wire::kEnvStateDir)) return places.state_dir;
  return std::string(setting.otherwise);
}

std::vector<HeldSetting> HeldSettings(const Configuration& configuration) {
  std::vector<HeldSetting> held;
  const Environment environment = [&configuration](const char* variable) {
    const std::string set = ProcessEnvironment()(variable);
    const ConfiguredValue* const configured = configuration.Find(variable);
    return set.empty() && configured != nullptr ? configured->value : set;
  };
  const Places places = FindPlaces(environment);
  for (const Setting& setting : Settings()) {
    const ConfiguredValue* const configured = configuration.Find(setting.variable);
    if (std::string set = ProcessEnvironment()(setting.variable); !set.empty()) {
      held.push_back({&setting, std::move(set), "environment", configured});
    } else if (configured != nullptr) {
      held.push_back({&setting, configured->value, "file", configured});
    } else {
      held.push_back({&setting, Otherwise(setting, places), "default", nullptr});
    }
  }
  return held;
}

std::string PlaceOf(const ConfiguredValue& value) {
  return fmt::format("{}:{}", value.file, value.line);
}

std::string SourceOf(const HeldSetting& held) {
  if (held.source == "file") return PlaceOf(*held.configured);
  if (held.source == "default") return "default";
  const std::string variable = held.setting->variable;
  return held.configured == nullptr ? variable : variable + ", before " + PlaceOf(*held.configured);
}

// A list of several lines stays in its row.
std::string InOneLine(std::string text) {
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 2))
    text.replace(at, 1, "; ");
  return text;
}

std::string AsText(const Configuration& configuration) {
  std::vector<std::vector<std::string>> rows;
  for (const HeldSetting& held : HeldSettings(configuration))
    rows.push_back({std::string(held.setting->key), InOneLine(held.value), SourceOf(held)});
  std::string text = FormatTable({{"SETTING"}, {"VALUE"}, {"FROM"}}, rows);
  text +=
      configuration.files.empty()
          ? "\nno configuration file was found ('nanwatch config --help' says where one can be)\n"
          : fmt::format("\nread: {}\n", fmt::join(configuration.files, ", "));
  return text;
}

std::string AsJson(const Configuration& configuration) {
  nlohmann::ordered_json settings = nlohmann::ordered_json::array();
  for (const HeldSetting& held : HeldSettings(configuration)) {
    nlohmann::ordered_json setting = {{"key", held.setting->key},
                                      {"variable", held.setting->variable},
                                      {"value", held.value},
                                      {"source", held.source}};
    if (held.configured != nullptr) {
      setting["file"] = held.configured->file;
      setting["line"] = held.configured->line;
    }
    settings.push_back(std::move(setting));
  }
  const nlohmann::ordered_json document = {{"schema", "nanwatch.config/1"},
                                           {"files", configuration.files},
                                           {"settings", std::move(settings)}};
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// What `run` or `serve` would refuse, as they say it; "" if there is nothing.
std::string FindWrongValue(const Configuration& configuration) {
  EnvironmentBlock environment = EnvironmentBlock::OfThisProcess();
  RunOptions options;
  options.command = {"any"};
  std::string listen_name = kEnvServeListen;
  for (const ConfiguredValue& value : configuration.values) {
    const char* const variable = value.setting->variable;
    if (!environment.Text(variable).empty()) continue;
    environment.Set(variable, value.value);
    const std::string name = fmt::format("{} ({})", value.setting->key, PlaceOf(value));
    options.configured[variable] = name;
    if (variable == std::string_view(kEnvServeListen)) listen_name = name;
  }
  if (std::string wrong = FindWrongUse(options, environment); !wrong.empty()) return wrong;
  const std::string listen = environment.Text(kEnvServeListen);
  if (listen.empty() || ParseListen(listen).has_value()) return "";
  return WrongListen(listen_name, listen, kServeListenExample);
}

}  // namespace

void AddConfigVerb(CLI::App& app, VerbCall& call) {
  CLI::App* verb = app.add_subcommand("config", "Show which settings hold, and where each is set.");
  SetHelp(*verb, "nanwatch config [--json]", kConfigHelp);
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "As a JSON document (nanwatch.config/1)");
  verb->callback([json, &call] {
    call.chosen = [json, &call]() -> int {
      const std::string wrong = FindWrongValue(call.configuration);
      const int printed =
          PrintAndExit(*json ? AsJson(call.configuration) : AsText(call.configuration), kExitOk);
      if (wrong.empty()) return printed;
      Say(wrong);
      return kExitUsage;
    };
  });
}

}  // namespace nanwatch
