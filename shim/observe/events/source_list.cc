// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/events/source_list.h"

namespace nanwatch {

wire::Source SourceFrom(const BadEntry& entry) noexcept {
  wire::Source source{};
  source.kinds = 0;
  source.input = 255;
  source.name = entry.name;
  source.target = static_cast<uint8_t>(entry.target);
  if (!entry.IsExternal()) {
    source.kind = static_cast<uint8_t>(wire::SourceKind::kValue);
    source.site = entry.site;
    source.value = entry.value.ticket;
  } else {
    source.kind = static_cast<uint8_t>(wire::SourceKind::kExternal);
    source.value = entry.shared_file;
    if (entry.writer_unseen) source.flags = wire::Source::kWriterUnseen;
  }
  return source;
}

wire::Source UnknownSource(uint8_t kinds) noexcept {
  wire::Source source{};
  source.kind = static_cast<uint8_t>(wire::SourceKind::kUnknown);
  source.kinds = kinds;
  source.input = 255;
  return source;
}

}  // namespace nanwatch
