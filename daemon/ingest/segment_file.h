// SPDX-License-Identifier: Apache-2.0
// The file of a segment as bytes: opened, its header and directory of sections checked against its
// size, its sections mapped. What they mean is segment_reader's.
//
// Resource type, one owner, not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/base/status.h"
#include "daemon/base/unique_fd.h"
#include "daemon/ingest/guarded_mapping.h"
#include "proto/wire/segment.h"

namespace nanwatch {

class SegmentFile {
 public:
  // A section in memory; `bytes` 0 when the segment has none of that type.
  struct Section {
    unsigned char* data = nullptr;
    size_t bytes = 0;
    uint32_t stride = 0;
  };

  static Result<SegmentFile> Open(const std::string& path, bool writable);

  [[nodiscard]] const wire::SegmentHeader& header() const { return header_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] uint64_t inode() const { return inode_; }
  [[nodiscard]] const Section& section(wire::SectionType type) const {
    return sections_[static_cast<size_t>(type)];
  }

  // How many names the file has in its directory: 0 once it was removed.
  [[nodiscard]] uint64_t LinkCount() const;
  // Whether somebody has made it shorter than it was when opened.
  [[nodiscard]] bool IsCutShort() const;

 private:
  static constexpr size_t kTypes = static_cast<size_t>(wire::SectionType::kTelemetry) + 1;

  SegmentFile(std::string path, UniqueFd fd, const wire::SegmentHeader& header,
              GuardedMapping mapping);
  Status ReadDirectory();

  std::string path_;
  UniqueFd fd_;
  uint64_t inode_ = 0;
  wire::SegmentHeader header_;
  GuardedMapping mapping_;
  std::array<Section, kTypes> sections_{};
};

}  // namespace nanwatch
