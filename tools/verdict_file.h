// The file that `run --verdict FILE` writes.
#pragma once

#include <string>
#include <string_view>

namespace nanwatch {

// Opened before the job starts, so that a path that cannot be written is found out while nothing is
// lost; empty until Write, so that an older verdict is never taken for this job's. Owns the
// descriptor.
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
  std::string path_;
  int fd_ = -1;
};

}  // namespace nanwatch
