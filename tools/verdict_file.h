// SPDX-License-Identifier: Apache-2.0
// The file that `run --verdict FILE` writes.
//
// A regular file is replaced whole: the document is written beside it and gets its name at the end.
// A reader that finds the file finds one whole document, however many launchers write it; the last
// one wins. Pipes, devices and stdout are written to as they are. A file that cannot be replaced
// (its directory takes no new file, it has a second name, its owner cannot be kept) is written in
// place, under flock; only then may a reader find it empty or half written.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace nanwatch {

// Opened before the job starts, so that a path that cannot be written is found while nothing is
// lost. An older verdict is removed then, so that nobody takes it for this job's.
class VerdictFile {
 public:
  VerdictFile() = default;
  VerdictFile(VerdictFile&& other) noexcept;
  VerdictFile& operator=(VerdictFile&& other) noexcept;
  ~VerdictFile();

  // "-" is stdout, "" no file at all. On failure `error` is a sentence, and nothing was changed.
  [[nodiscard]] static VerdictFile Open(const std::string& path, std::string& error);

  // Writes the document and a newline; "" or a sentence. Does nothing when there is no file.
  [[nodiscard]] std::string Write(std::string_view document);

 private:
  enum class Mode { kNone, kStream, kReplace, kInPlace };
  // What a replaced file hands on to the next one.
  struct Owner {
    mode_t mode;
    uid_t uid;
    gid_t gid;
  };

  bool OpenRegular();
  bool TakeAway();
  [[nodiscard]] bool Replace(std::string_view document) const;
  [[nodiscard]] bool Overwrite(std::string_view document);

  std::string path_;    // as it was given
  std::string target_;  // where links lead
  Mode mode_ = Mode::kNone;
  int fd_ = -1;                 // of kStream and kInPlace
  std::optional<Owner> owner_;  // of the file that was removed at the start
};

}  // namespace nanwatch
