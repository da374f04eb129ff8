// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/segment_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "daemon/ingest/segment_reader.h"
#include "daemon/ingest/writer_liveness.h"

namespace nanwatch {
namespace {

Status NotASegment(const std::string& why) { return Status(ErrorKind::kInvalid, why); }

bool PreadAll(int fd, void* to, size_t bytes, uint64_t offset) {
  auto* target = static_cast<unsigned char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(fd, target, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    target += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

// The major version decides whether the rest can be read at all, so it is checked first.
Status CheckVersion(const wire::SegmentHeader& header) {
  if (header.magic != wire::kSegmentMagic) return NotASegment("does not start like a segment");
  if (header.wire_major == wire::kWireMajor) return Status();
  return Status(ErrorKind::kUnsupported,
                "written in wire format " + std::to_string(header.wire_major) + "." +
                    std::to_string(header.wire_minor) + ", this program reads format " +
                    std::to_string(wire::kWireMajor) +
                    ": use the nanwatch that the job was started with");
}

Result<wire::SegmentHeader> ReadHeader(int fd, uint64_t file_bytes) {
  wire::SegmentHeader header{};
  constexpr size_t kVersionEnd = offsetof(wire::SegmentHeader, file_bytes);
  if (file_bytes < kVersionEnd || !PreadAll(fd, &header, kVersionEnd, 0)) {
    return NotASegment("too short for a segment (" + std::to_string(file_bytes) + " bytes)");
  }
  if (Status version = CheckVersion(header); !version.ok()) return version;
  if (header.header_bytes < sizeof header || !PreadAll(fd, &header, sizeof header, 0)) {
    return NotASegment("its header is cut short");
  }
  if (Status version = CheckVersion(header); !version.ok()) return version;
  if (header.file_bytes > file_bytes) {
    return NotASegment("cut short: " + std::to_string(file_bytes) + " of " +
                       std::to_string(header.file_bytes) + " bytes");
  }
  if (header.file_bytes > kSegmentBytesMax || header.file_bytes < sizeof header) {
    return NotASegment("claims a size that no segment has (" + std::to_string(header.file_bytes) +
                       " bytes)");
  }
  return header;
}

}  // namespace

SegmentFile::SegmentFile(std::string path, UniqueFd fd, const wire::SegmentHeader& header,
                         GuardedMapping mapping)
    : path_(std::move(path)), fd_(std::move(fd)), header_(header), mapping_(std::move(mapping)) {}

Result<SegmentFile> SegmentFile::Open(const std::string& path, bool writable) {
  // O_NONBLOCK: somebody may have put a FIFO there.
  const int flags = (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  UniqueFd fd(open(path.c_str(), flags));
  if (!fd.valid()) return Status::FromErrno(errno, "cannot open it");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return Status::FromErrno(errno, "cannot read its status");
  if (!S_ISREG(info.st_mode)) return NotASegment("not a regular file");
  if (info.st_uid != geteuid()) {
    return Status(ErrorKind::kPermission, "belongs to user " + std::to_string(info.st_uid));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 || info.st_nlink > 1) {
    return Status(ErrorKind::kPermission,
                  info.st_nlink > 1 ? "has a second name" : "can be written by others");
  }
  const Result<wire::SegmentHeader> header =
      ReadHeader(fd.get(), static_cast<uint64_t>(info.st_size));
  if (!header.ok()) return header.status();
  if (IsOfAnotherPlace(*header, HostIdentity::Current())) {
    return Status(ErrorKind::kPermission, "belongs to another container (pid namespace " +
                                              std::to_string(header->pid_namespace) +
                                              "), whose own nanwatch reads it");
  }
  Result<GuardedMapping> mapping = GuardedMapping::Map(fd.get(), header->file_bytes, writable);
  if (!mapping.ok()) return mapping.status();
  SegmentFile file(path, std::move(fd), *header, *std::move(mapping));
  file.inode_ = info.st_ino;
  if (Status read = file.ReadDirectory(); !read.ok()) return read;
  return file;
}

Status SegmentFile::ReadDirectory() {
  if (header_.section_count > wire::kSectionsMax) {
    return NotASegment("its directory claims " + std::to_string(header_.section_count) +
                       " sections");
  }
  for (uint32_t i = 0; i < header_.section_count; ++i) {
    const wire::SectionEntry& entry = header_.sections[i];
    if (entry.type == 0 || entry.type >= kTypes) continue;  // of a newer writer
    const bool inside = entry.offset % 64 == 0 && entry.offset <= header_.file_bytes &&
                        entry.size <= header_.file_bytes - entry.offset;
    if (!inside)
      return NotASegment("section " + std::to_string(entry.type) + " lies outside the file");
    Section& section = sections_[entry.type];
    if (section.bytes == 0) section = {mapping_.data() + entry.offset, entry.size, entry.stride};
  }
  if (section(wire::SectionType::kLive).bytes < sizeof(wire::LiveBlock)) {
    return NotASegment("it has no live block");
  }
  return Status();
}

uint64_t SegmentFile::LinkCount() const {
  struct stat info {};
  return fstat(fd(), &info) == 0 ? info.st_nlink : 0;
}

bool SegmentFile::IsCutShort() const {
  struct stat info {};
  return fstat(fd(), &info) != 0 || static_cast<uint64_t>(info.st_size) < header_.file_bytes;
}

}  // namespace nanwatch
