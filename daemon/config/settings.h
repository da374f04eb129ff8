// SPDX-License-Identifier: Apache-2.0
// The settings that a configuration file may have. Each is also an environment variable, so that
// whatever reads the variable needs to know nothing of files.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace nanwatch {

// Variables that only the tools read.
inline constexpr char kEnvConfig[] =
    "NANWATCH_CONFIG";  // a configuration file, instead of those found
inline constexpr char kEnvOutbox[] = "NANWATCH_OUTBOX";  // "1": keep one for a fleet
inline constexpr char kEnvForwardTo[] = "NANWATCH_FORWARD_TO";
inline constexpr char kEnvForwardTokenFile[] = "NANWATCH_FORWARD_TOKEN_FILE";
inline constexpr char kEnvForwardCollector[] = "NANWATCH_FORWARD_COLLECTOR";
inline constexpr char kEnvForwardCa[] = "NANWATCH_FORWARD_CA";
inline constexpr char kEnvForwardCert[] = "NANWATCH_FORWARD_CERT";
inline constexpr char kEnvForwardKey[] = "NANWATCH_FORWARD_KEY";
inline constexpr char kEnvForwardMetrics[] = "NANWATCH_FORWARD_METRICS";
inline constexpr char kEnvFleet[] = "NANWATCH_FLEET";  // a gatherer that is asked; or kNoFleet
inline constexpr char kNoFleet[] = "none";
inline constexpr char kEnvFleetTokenFile[] = "NANWATCH_FLEET_TOKEN_FILE";
inline constexpr char kEnvFleetCa[] = "NANWATCH_FLEET_CA";
inline constexpr char kEnvFleetCert[] = "NANWATCH_FLEET_CERT";
inline constexpr char kEnvFleetKey[] = "NANWATCH_FLEET_KEY";
inline constexpr char kEnvServeListen[] = "NANWATCH_SERVE_LISTEN";
inline constexpr char kServeListenExample[] = "127.0.0.1:9464 or [::1]:9464";
inline constexpr char kEnvServeTokenFile[] = "NANWATCH_SERVE_TOKEN_FILE";
inline constexpr char kEnvServeHosts[] = "NANWATCH_SERVE_HOSTS";  // separated by commas

enum class SettingKind : uint8_t {
  kText,    // "full"
  kPath,    // "~/state", "logs"; a relative one starts at the file's directory
  kLog,     // a path, or "stderr"
  kNumber,  // 2.5, or "2.5"
  kSize,    // "64M", or a number of bytes
  kSwitch,  // true, false
  kRules,   // ["op=aten::log"], or one string; "@FILE" alone names a file of rules
  kNames,   // ["node1", "node1.example.org"], or one string
};

struct Setting {
  std::string_view key;  // as in the file: "state_dir", "run.level"
  const char* variable;
  SettingKind kind;
  std::string_view otherwise;  // what holds when nobody sets it, in words; "": see the places

  // "run" of "run.level", "" of "state_dir".
  [[nodiscard]] std::string_view section() const;
};

// In the order in which they are listed.
[[nodiscard]] std::span<const Setting> Settings();

// What a value of `kind` looks like, for a complaint: "true or false".
[[nodiscard]] std::string_view ExampleOf(SettingKind kind);

}  // namespace nanwatch
