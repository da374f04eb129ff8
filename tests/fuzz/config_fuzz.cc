// SPDX-License-Identifier: Apache-2.0
// Whatever a nanwatch.toml says, it is read or refused with a sentence. A libFuzzer target.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "daemon/config/config_file.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

void TryOne(const uint8_t* data, size_t size) {
  static const TemporaryDirectory directory;
  static const std::string path = directory / "nanwatch.toml";
  static const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  const Result<std::vector<ConfiguredValue>> values = ReadConfigFile(path, "/home/u");
  if (!values.ok()) {
    if (values.status().message().find("nanwatch.toml") == std::string::npos) std::abort();
    return;
  }
  for (const ConfiguredValue& value : *values)
    if (value.setting == nullptr || value.line == 0 || value.file != path) std::abort();
}

}  // namespace
}  // namespace nanwatch

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nanwatch::TryOne(data, size);
  return 0;
}
