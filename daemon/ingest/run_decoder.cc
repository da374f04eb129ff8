// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/run_decoder.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/ingest/secret_words.h"
#include "daemon/ingest/wire_bytes.h"
#include "proto/wire/text.h"

namespace nanwatch {
namespace {

uint32_t LevelOf(const wire::SegmentHeader& header) {
  constexpr auto kMax = static_cast<uint32_t>(wire::Level::kAuto);
  return header.level <= kMax ? header.level : 0;
}

}  // namespace

// Behind the arguments; one that cannot be reached does not begin with a slash.
std::string DirectoryOf(const wire::SegmentHeader& header) {
  constexpr uint16_t kMinorOfDirectory = 12;
  const size_t at = std::min<size_t>(header.command_bytes, sizeof header.command);
  const std::string_view rest(header.command + at, sizeof header.command - at);
  if (header.wire_minor < kMinorOfDirectory || !rest.starts_with('/')) return "";
  return wire::CleanText(rest.substr(0, rest.find('\0')), sizeof header.command);
}

Run DecodeRun(const wire::SegmentHeader& header) {
  Run out;
  out.set_nonce(header.nonce);
  out.set_job(TextIn(header.job));
  out.set_host(TextIn(header.host));
  out.set_boot_id(TextIn(header.boot_id));
  out.set_pid(header.pid);
  out.set_pid_outer(header.pid_outer);
  out.set_pid_namespace(header.pid_namespace);
  out.set_process_start_ticks(header.process_start_ticks);
  out.set_parent_pid(header.parent_pid);
  out.set_forked_from(header.forked_from);
  out.set_rank(header.rank);
  out.set_local_rank(header.local_rank);
  out.set_world_size(header.world_size);
  out.set_attempt(header.attempt);
  out.set_torch_version(TextIn(header.torch_version));
  out.set_python_version(TextIn(header.python_version));
  out.set_program(TextIn(header.program));
  std::string_view rest(header.command,
                        std::min<size_t>(header.command_bytes, sizeof header.command));
  std::vector<std::string> command;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    command.push_back(wire::CleanText(rest.substr(0, end), sizeof header.command));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  for (std::string& word : WithoutSecrets(std::move(command))) out.add_command(std::move(word));
  out.set_directory(DirectoryOf(header));
  out.set_level(LevelOf(header));
  out.set_started_real_ns(header.started_real_ns);
  out.set_started_monotonic_ns(header.started_monotonic_ns);
  out.set_wire_major(header.wire_major);
  out.set_wire_minor(header.wire_minor);
  out.set_late(header.late != 0);
  return out;
}

void DecodeIgnore(const wire::IgnoreSection& section, Run& run) {
  std::string_view text(section.text, std::min<size_t>(section.bytes, sizeof section.text));
  if ((section.flags & wire::IgnoreSection::kUnreadable) != 0) {
    run.set_ignore_problem("the rules in '" + wire::CleanText(text, 1024) +
                           "' are not applied: " + std::strerror(section.error));
    return;
  }
  if ((section.flags & wire::IgnoreSection::kCut) != 0) {
    run.set_ignore_problem("the rules are longer than " + std::to_string(sizeof section.text) +
                           " bytes: those at the end are not applied");
  }
  // Line by line, because a line's end is the only control character that means something.
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    std::string words(line);
    std::replace_if(
        words.begin(), words.end(), [](char c) { return c == '\t' || c == '\r'; }, ' ');
    *run.mutable_ignore() += wire::CleanText(words, sizeof section.text) + '\n';
  }
}

}  // namespace nanwatch
