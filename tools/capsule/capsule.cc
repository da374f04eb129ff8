// SPDX-License-Identifier: Apache-2.0
#include "tools/capsule/capsule.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "proto/wire/capsule.h"

namespace nanwatch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uintmax_t kManifestBytesMax = 16 << 20;
constexpr char kReplayFile[] = "/replay.json";

// Discarded: there is no such file, or it is no JSON.
Json ReadJson(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  if (error || bytes > kManifestBytesMax) return Json(Json::value_t::discarded);
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string TextIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

uint64_t NumberIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

Json ObjectIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : Json::object();
}

std::string Names(const std::vector<Capsule>& capsules) {
  std::string names;
  for (const Capsule& capsule : capsules) names += (names.empty() ? "" : ", ") + capsule.name;
  return names;
}

}  // namespace

std::string CapsuleDirectory(const std::string& state_dir) { return state_dir + "/capsules"; }

Result<Capsule> ReadCapsule(const std::string& named) {
  std::error_code error;
  fs::path folder = fs::absolute(named, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  const std::string path = folder.string();
  const std::string manifest_path = path + "/" + wire::kCapsuleManifest;
  if (!fs::exists(manifest_path, error)) {
    return Status(ErrorKind::kNotFound, "'" + path + "' is no capsule: it has no manifest.json");
  }
  const Json manifest = ReadJson(manifest_path);
  if (!manifest.is_object()) {
    return Status(ErrorKind::kCorrupt, "'" + path + "' has a manifest.json that cannot be read");
  }
  if (TextIn(manifest, "schema") != wire::kCapsuleSchema) {
    return Status(ErrorKind::kUnsupported, "'" + path + "' is a capsule of schema '" +
                                               TextIn(manifest, "schema") + "', not " +
                                               wire::kCapsuleSchema);
  }
  const Json origin = ObjectIn(manifest, "origin");
  const auto complete = manifest.find("complete");
  return Capsule{.name = fs::path(path).filename().string(),
                 .path = path,
                 .run = TextIn(origin, "run"),
                 .ticket = NumberIn(origin, "ticket"),
                 .op = TextIn(origin, "op"),
                 .layer = TextIn(origin, "layer"),
                 .phase = TextIn(origin, "phase"),
                 .can_run = complete != manifest.end() && *complete == true,
                 .why_not = TextIn(manifest, "why_not"),
                 .python = TextIn(manifest, "python"),
                 .torch = TextIn(ObjectIn(manifest, "torch"), "version"),
                 .word = TextIn(ReadJson(path + kReplayFile), "word"),
                 .tensor_bytes = NumberIn(manifest, "tensors_bytes")};
}

std::vector<Capsule> ReadCapsules(const std::string& directory) {
  std::vector<Capsule> capsules;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().has_extension()) continue;  // not complete
    Result<Capsule> capsule = ReadCapsule(entry.path());
    if (capsule.ok()) capsules.push_back(std::move(capsule).value());
  }
  std::sort(capsules.begin(), capsules.end(),
            [](const Capsule& a, const Capsule& b) { return a.name < b.name; });
  return capsules;
}

Result<Capsule> FindCapsule(const std::string& directory, const std::string& named) {
  std::error_code error;
  if (named.find('/') != std::string::npos ||
      fs::exists(named + "/" + wire::kCapsuleManifest, error)) {
    return ReadCapsule(fs::path(named).lexically_normal().string());
  }
  std::vector<Capsule> fitting = ReadCapsules(directory);
  if (fitting.empty()) {
    return Status(
        ErrorKind::kNotFound,
        "there is no capsule in " + directory +
            ": 'nanwatch run --capsule op -- COMMAND' writes them when something goes bad");
  }
  if (named.empty()) {
    const auto changed = [&error](const Capsule& capsule) {
      return fs::last_write_time(capsule.path + "/" + wire::kCapsuleManifest, error);
    };
    return *std::max_element(
        fitting.begin(), fitting.end(),
        [&changed](const Capsule& a, const Capsule& b) { return changed(a) < changed(b); });
  }
  std::erase_if(fitting, [&named](const Capsule& each) { return !each.name.starts_with(named); });
  if (fitting.empty()) {
    return Status(ErrorKind::kNotFound,
                  "there is no capsule '" + named + "': 'nanwatch capsule ls' lists them");
  }
  const bool same_run =
      std::all_of(fitting.begin(), fitting.end(),
                  [&fitting](const Capsule& each) { return each.run == fitting[0].run; });
  if (!same_run) {
    return Status(ErrorKind::kAmbiguous,
                  "'" + named + "' may be " + Names(fitting) + ": give more of its name");
  }
  return fitting[0];
}

const Capsule* CapsuleOf(const Finding& origin, const std::vector<Capsule>& capsules) {
  const auto found =
      std::find_if(capsules.begin(), capsules.end(), [&origin](const Capsule& capsule) {
        return capsule.run == origin.run() && capsule.ticket == origin.ticket();
      });
  return found != capsules.end() ? &*found : nullptr;
}

}  // namespace nanwatch
