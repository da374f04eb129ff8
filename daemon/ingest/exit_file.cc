// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/exit_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>

#include "daemon/base/unique_fd.h"
#include "proto/wire/text.h"

namespace nanwatch {
namespace {

using Json = nlohmann::json;

constexpr size_t kBytesMax = 16 * 1024;

std::optional<int32_t> Number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return {};
  const auto value = found->get<int64_t>();
  if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max())
    return {};
  return static_cast<int32_t>(value);
}

}  // namespace

Result<JobExit> ParseJobExit(std::string_view text) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Status(ErrorKind::kInvalid, "not a JSON object");
  const auto job = object.find("job");
  if (job == object.end() || !job->is_string() || job->get_ref<const std::string&>().empty()) {
    return Status(ErrorKind::kInvalid, "names no job");
  }
  JobExit exit;
  exit.job = wire::CleanText(job->get_ref<const std::string&>());
  exit.pid = Number(object, "pid").value_or(0);
  exit.exit_code = Number(object, "exit_code");
  exit.signal = Number(object, "signal");
  const auto ended = object.find("ended_real_ns");
  if (ended != object.end() && ended->is_number_integer())
    exit.ended_real_ns = ended->get<uint64_t>();
  return exit;
}

Result<JobExit> ReadJobExit(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return Status::FromErrno(errno, "cannot open it");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Status(ErrorKind::kInvalid, "not a regular file");
  }
  std::string text(kBytesMax, '\0');
  const ssize_t got = read(fd.get(), text.data(), text.size());
  if (got < 0) return Status::FromErrno(errno, "cannot read it");
  text.resize(static_cast<size_t>(got));
  return ParseJobExit(text);
}

}  // namespace nanwatch
