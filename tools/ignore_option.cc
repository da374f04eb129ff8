// SPDX-License-Identifier: Apache-2.0
#include "tools/ignore_option.h"

#include "daemon/base/small_file.h"
#include "daemon/base/status.h"
#include "proto/wire/ignore_section.h"

namespace nanwatch {

IgnoreText ReadIgnoreOptions(const std::vector<std::string>& given) {
  IgnoreText read;
  for (const std::string& option : given) {
    std::string text = option;
    if (option.starts_with('@')) {
      const std::string path = option.substr(1);
      const Result<std::string> rules = ReadSmallFile(path, wire::kIgnoreBytesMax);
      if (!rules.ok()) {
        read.problems.push_back("the rules in '" + path +
                                "' are not applied: " + rules.status().message());
        continue;
      }
      text = *rules;
    }
    if (!text.empty()) read.text += text + (text.ends_with('\n') ? "" : "\n");
  }
  return read;
}

}  // namespace nanwatch
