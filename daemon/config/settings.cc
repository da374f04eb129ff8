// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/settings.h"

#include "proto/wire/capsule.h"
#include "proto/wire/naming.h"

namespace nanwatch {
namespace {

constexpr Setting kSettings[] = {
    {"dir", wire::kEnvDir, SettingKind::kPath, ""},
    {"state_dir", wire::kEnvStateDir, SettingKind::kPath, ""},
    {"outbox", kEnvOutbox, SettingKind::kSwitch, "false"},
    {"run.level", wire::kEnvLevel, SettingKind::kText, "full; sampled on a GPU"},
    {"run.budget", wire::kEnvBudget, SettingKind::kNumber, "none"},
    {"run.stats", wire::kEnvStats, SettingKind::kNumber, "100"},
    {"run.measure", wire::kEnvMeasure, SettingKind::kNumber, "0"},
    {"run.kernels", wire::kEnvKernels, SettingKind::kSwitch, "false"},
    {"run.capsule", wire::kEnvCapsule, SettingKind::kText, "off"},
    {"run.capsule_limit", wire::kEnvCapsuleLimit, SettingKind::kSize, "64M"},
    {"run.vet_checkpoints", wire::kEnvVetCheckpoints, SettingKind::kSwitch, "false"},
    {"run.on_anomaly", wire::kEnvOnAnomaly, SettingKind::kText, "continue"},
    {"run.ignore", wire::kEnvIgnore, SettingKind::kRules, "none"},
    {"run.log", wire::kEnvLog, SettingKind::kLog, "stderr"},
    {"serve.listen", kEnvServeListen, SettingKind::kText, "127.0.0.1:9464"},
    {"serve.token_file", kEnvServeTokenFile, SettingKind::kPath, "none"},
    {"serve.hosts", kEnvServeHosts, SettingKind::kNames, "none"},
    {"forward.to", kEnvForwardTo, SettingKind::kText, "none"},
    {"forward.token_file", kEnvForwardTokenFile, SettingKind::kPath, "none"},
    {"forward.collector", kEnvForwardCollector, SettingKind::kSwitch, "false"},
    {"forward.ca", kEnvForwardCa, SettingKind::kPath, "none"},
    {"forward.cert", kEnvForwardCert, SettingKind::kPath, "none"},
    {"forward.key", kEnvForwardKey, SettingKind::kPath, "none"},
    {"forward.metrics", kEnvForwardMetrics, SettingKind::kPath, "none"},
    {"fleet.url", kEnvFleet, SettingKind::kText, "none"},
    {"fleet.token_file", kEnvFleetTokenFile, SettingKind::kPath, "none"},
    {"fleet.ca", kEnvFleetCa, SettingKind::kPath, "none"},
    {"fleet.cert", kEnvFleetCert, SettingKind::kPath, "none"},
    {"fleet.key", kEnvFleetKey, SettingKind::kPath, "none"},
};

}  // namespace

std::string_view Setting::section() const {
  const size_t dot = key.find('.');
  return dot == std::string_view::npos ? "" : key.substr(0, dot);
}

std::span<const Setting> Settings() { return kSettings; }

std::string_view ExampleOf(SettingKind kind) {
  switch (kind) {
    case SettingKind::kText:
      return "text, in quotes";
    case SettingKind::kPath:
    case SettingKind::kLog:
      return "a path, in quotes";
    case SettingKind::kNumber:
      return "a number";
    case SettingKind::kSize:
      return "a size, such as \"64M\"";
    case SettingKind::kSwitch:
      return "true or false";
    case SettingKind::kRules:
    case SettingKind::kNames:
      return "a list of texts, such as [\"a\", \"b\"]";
  }
  return "";
}

}  // namespace nanwatch
