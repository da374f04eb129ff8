// SPDX-License-Identifier: Apache-2.0
#include "tools/capsule/completion.h"

#include <fcntl.h>
#include <mbedtls/sha256.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "daemon/base/unique_fd.h"
#include "daemon/ingest/writer_liveness.h"
#include "proto/wire/capsule.h"
#include "tools/whole_file.h"

namespace nanwatch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kCompleting[] = ".completing";
constexpr char kProgramName[] = "/repro_op.py";
// A job needs a moment for one.
constexpr std::chrono::minutes kWritingMax{10};

std::string ContentOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void Sync(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.valid()) (void)fsync(file.get());
}

// How long the file is by its own header; nothing: it has none. A machine that went down before the
// disk had it all may leave less.
std::optional<uint64_t> LengthByHeader(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  uint64_t header = 0;
  in.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!in || header > (uint64_t{16} << 20)) return std::nullopt;
  std::string text(header, '\0');
  in.read(text.data(), static_cast<std::streamsize>(header));
  const Json parts = in ? Json::parse(text, nullptr, false) : Json();
  if (!parts.is_object()) return std::nullopt;
  uint64_t end = 0;
  for (const Json& part : parts) {
    const auto offsets = part.find("data_offsets");
    if (offsets == part.end() || offsets->size() != 2 || !(*offsets)[1].is_number_unsigned()) {
      return std::nullopt;
    }
    end = std::max(end, (*offsets)[1].get<uint64_t>());
  }
  return sizeof header + header + end;
}

bool IsOlderThan(const fs::path& path, fs::file_time_type time) {
  std::error_code error;
  const fs::file_time_type changed = fs::last_write_time(path, error);
  return !error && changed < time;
}

// What was written and not synced when a machine went down may be there in part.
void DoubtAfterRestart(Json& manifest) {
  const auto boot = manifest.find("boot");
  if (boot != manifest.end() && *boot == HostIdentity::Current().boot_id) return;
  manifest["complete"] = false;
  manifest["why_not"] =
      "it was written before this machine was started, or by another one, and not completed there";
}

// kCorrupt: what was written is of no use.
Status CompleteOne(const fs::path& written) {
  const std::string path = written.string();
  const std::string tensors = path + "/" + wire::kCapsuleTensors;
  const std::string manifest_path = path + "/" + wire::kCapsuleManifest;
  Json manifest = Json::parse(ContentOf(manifest_path), nullptr, false);
  if (!manifest.is_object() || !manifest.contains("complete")) {
    return {ErrorKind::kCorrupt, "its manifest is damaged"};
  }
  DoubtAfterRestart(manifest);
  if (manifest["complete"] == true) {
    std::error_code error;
    const std::optional<uint64_t> length = LengthByHeader(tensors);
    if (!length.has_value() || *length != fs::file_size(tensors, error)) {
      return {ErrorKind::kCorrupt, "its tensors are not all there"};
    }
    manifest["tensors_bytes"] = *length;
    const std::string sum = Sha256Of(tensors);
    if (sum.empty()) return {ErrorKind::kIo, "its tensors cannot be read"};
    manifest["tensors_sha256"] = sum;
  }
  const std::string text = manifest.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (!WriteWholeFile(manifest_path, text) || !WriteWholeFile(path + kProgramName, kReproProgram)) {
    return {ErrorKind::kIo, "it could not be written"};
  }
  for (const std::string& file : {manifest_path, tensors, path + kProgramName, path}) Sync(file);
  const std::string name = written.stem().string();
  if (rename(path.c_str(), (written.parent_path() / name).c_str()) != 0) {
    return Status::FromErrno(errno, "it could not be renamed");
  }
  return {};
}

}  // namespace

std::string Sha256Of(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rbe");
  if (file == nullptr) return "";
  mbedtls_sha256_context context;
  mbedtls_sha256_init(&context);
  bool fine = mbedtls_sha256_starts_ret(&context, 0) == 0;
  std::array<unsigned char, 1 << 16> buffer{};
  size_t bytes = 0;
  while ((bytes = std::fread(buffer.data(), 1, buffer.size(), file)) != 0) {
    fine = fine && mbedtls_sha256_update_ret(&context, buffer.data(), bytes) == 0;
  }
  fine = fine && std::ferror(file) == 0;
  std::array<unsigned char, 32> sum{};
  fine = mbedtls_sha256_finish_ret(&context, sum.data()) == 0 && fine;
  mbedtls_sha256_free(&context);
  (void)std::fclose(file);
  std::string text;
  for (const unsigned char byte : sum) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return fine ? text : "";
}

std::vector<std::string> CompleteCapsules(const std::string& directory) {
  const UniqueFd turn(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!turn.valid()) return {};
  while (flock(turn.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  std::vector<std::string> problems;
  std::error_code error;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(directory, error))
    folders.push_back(entry.path());
  const auto too_old = fs::file_time_type::clock::now() - kWritingMax;
  for (const fs::path& folder : folders) {
    if (folder.extension() == wire::kCapsulePartial && IsOlderThan(folder, too_old)) {
      fs::remove_all(folder, error);
    }
    const bool was_begun = folder.extension() == kCompleting;  // by a tool that was killed
    if (folder.extension() != wire::kCapsuleWritten && !was_begun) continue;
    // Its job may remove what it has written.
    const fs::path claimed = fs::path(folder).replace_extension(kCompleting);
    if (!was_begun && rename(folder.c_str(), claimed.c_str()) != 0) continue;
    const Status completed = CompleteOne(claimed);
    if (completed.ok()) continue;
    problems.push_back("capsule " + folder.stem().string() +
                       " cannot be used: " + completed.message());
    if (completed.kind() == ErrorKind::kCorrupt) fs::remove_all(claimed, error);
  }
  return problems;
}

Status VerifyCapsule(const Capsule& capsule) {
  const std::string manifest_path = capsule.path + "/" + wire::kCapsuleManifest;
  const Json manifest = Json::parse(ContentOf(manifest_path), nullptr, false);
  if (!manifest.is_object()) return {ErrorKind::kCorrupt, "its manifest.json is damaged"};
  if (!capsule.can_run) return {};
  const auto named = manifest.find("tensors_sha256");
  if (named == manifest.end() || !named->is_string()) {
    return {ErrorKind::kCorrupt, "its manifest.json names no checksum"};
  }
  const std::string sum = Sha256Of(capsule.path + "/" + wire::kCapsuleTensors);
  if (sum.empty() || sum != named->get<std::string>()) {
    return {
        ErrorKind::kCorrupt,
        "its tensors.safetensors is not the file that the manifest names: cut short, or changed"};
  }
  return {};
}

}  // namespace nanwatch
