// SPDX-License-Identifier: Apache-2.0
#include "shim/host/mapped_file.h"

#include <errno.h>

#include "shim/host/file_status.h"

// Boost asks fstat for a file's size when it is not told; file_status.h says why that symbol is not
// wanted.
inline int nanwatch_fstat(int fd, struct stat* status) noexcept {
  return nanwatch::FileStatus(fd, status);
}
#define fstat nanwatch_fstat
#include <boost/interprocess/mapped_region.hpp>
#undef fstat

namespace nanwatch {
namespace {

namespace ipc = boost::interprocess;

// What mapped_region asks of a file_mapping, around a descriptor that is already open: file_mapping
// itself opens by path, without O_CLOEXEC, and by closing that second descriptor would drop our
// lock.
class OpenFile {
 public:
  explicit OpenFile(int fd) noexcept : fd_(fd) {}
  ipc::mapping_handle_t get_mapping_handle() const {
    return ipc::ipcdetail::mapping_handle_from_file_handle(fd_);
  }
  ipc::mode_t get_mode() const { return ipc::read_write; }

 private:
  int fd_;
};

}  // namespace

unsigned char* MapFile(int fd, uint64_t bytes) noexcept {
  try {
    // Leaked: its destructor would unmap while threads still write.
    auto* region = new ipc::mapped_region(OpenFile(fd), ipc::read_write, 0, bytes);
    return static_cast<unsigned char*>(region->get_address());
  } catch (const ipc::interprocess_exception& exception) {
    errno = exception.get_native_error();
  } catch (...) {
    errno = ENOMEM;
  }
  return nullptr;
}

}  // namespace nanwatch
